package tables

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/codec"
)

func offsetTable(table map[string]map[int32]int64) codec.ConsumerOffsets {
	return codec.ConsumerOffsets{OffsetTable: table}
}

func TestOffsetsOfARealBrokerAreReadWhole(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.5.0"} {
		t.Run(version, func(t *testing.T) {
			f := capturedFiles(t, version)
			o := NewOffsets(f)
			require.NoError(t, o.Load())
			next, ok := o.Query("TOOLS_CONSUMER", "TopicA", 0)
			require.True(t, ok)
			require.Equal(t, int64(5), next)
			if version == "5.5.0" {
				require.JSONEq(t, standard(t, text(t, f, offsetsFile)), asJSON(t, o.Snapshot()))
				pulled, ok := o.QueryPull("TOOLS_CONSUMER", "TopicA", 0)
				require.True(t, ok)
				require.Equal(t, int64(40), pulled)
			} else {
				require.Equal(t, map[string]map[int32]int64{"TopicA@TOOLS_CONSUMER": {0: 5}}, o.Snapshot().OffsetTable)
			}
			require.NoError(t, o.Persist())
			require.NoFileExists(t, f.path(offsetsFile+backupSuffix), "nothing to write")

			o.Commit("G", "T", 3, 7)
			require.NoError(t, o.Persist())
			again := NewOffsets(f)
			require.NoError(t, again.Load())
			require.Equal(t, o.Snapshot(), again.Snapshot())
		})
	}
}

func TestACommitIsSeenAtOnce(t *testing.T) {
	o := NewOffsets(testFiles(t))
	_, ok := o.Query("G", "T", 0)
	require.False(t, ok)
	o.Commit("G", "T", 0, 10)
	o.CommitBytes([]byte("G"), []byte("T"), 1, 20)
	o.CommitPull("G", "T", 0, 15)
	require.Equal(t, map[int32]int64{0: 10, 1: 20}, o.Queues("G", "T"))
	pulled, ok := o.QueryPull("G", "T", 0)
	require.True(t, ok)
	require.Equal(t, int64(15), pulled)
	o.Commit("G", "T", 0, 3)
	next, ok := o.Query("G", "T", 0)
	require.True(t, ok)
	require.Equal(t, int64(3), next, "backwards is a reset")
	require.Nil(t, o.Queues("G", "other"))
}

func TestWhatNoClientCanMeanIsIgnored(t *testing.T) {
	o := NewOffsets(testFiles(t))
	o.Commit("G", "T", -1, 5)
	o.Commit("G", "T", 0, -5)
	o.CommitBytes([]byte("G"), []byte("T"), -1, 5)
	o.CommitPull("G", "T", 0, -1)
	require.Empty(t, o.Snapshot().OffsetTable)
	require.Empty(t, o.Snapshot().PullOffsetTable)
}

func TestTheNamesOfACommitMayLieInAFrame(t *testing.T) {
	o := NewOffsets(testFiles(t))
	frame := []byte("GT")
	o.CommitBytes(frame[:1], frame[1:], 0, 5)
	copy(frame, "XX")
	_, ok := o.Query("G", "T", 0)
	require.True(t, ok)
}

func TestACommitDoesNotAllocate(t *testing.T) {
	o := NewOffsets(testFiles(t))
	group, topic := []byte("a group with a long enough name to be copied"), []byte("a topic with a long enough name to be copied")
	n := int64(0)
	o.CommitBytes(group, topic, 0, n)
	require.Zero(t, testing.AllocsPerRun(1000, func() { n++; o.CommitBytes(group, topic, 0, n) }))
	g, to := string(group), string(topic)
	require.Zero(t, testing.AllocsPerRun(1000, func() { n++; o.Commit(g, to, 0, n) }))
	require.Zero(t, testing.AllocsPerRun(1000, func() { o.Query(g, to, 0) }))
}

func TestTheVersionRisesEvery500Commits(t *testing.T) {
	o := NewOffsets(testFiles(t))
	for n := range int64(1000) {
		require.Equal(t, n/500, o.Snapshot().DataVersion.Counter)
		o.Commit("G", "T", 0, n)
	}
	require.Equal(t, int64(2), o.Snapshot().DataVersion.Counter)
	o.DeleteTopic("T")
	require.Equal(t, int64(3), o.Snapshot().DataVersion.Counter)
}

func TestOffsetsAreFoundByTopicAndByGroup(t *testing.T) {
	o := NewOffsets(testFiles(t))
	for _, k := range []groupTopic{{group: "G1", topic: "T1"}, {group: "G2", topic: "T1"}, {group: "G1", topic: "T2"}} {
		o.Commit(k.group, k.topic, 0, 1)
	}
	require.Equal(t, []string{"G1", "G2"}, o.ByTopic("T1"))
	require.Equal(t, []string{"T1", "T2"}, o.ByGroup("G1"))
	require.Empty(t, o.ByTopic("T3"))
	require.Equal(t, map[string][]string{"G1": {"T1", "T2"}, "G2": {"T1"}}, o.Snapshot().GroupTopicMap)
}

func TestADeletedTopicOrGroupTakesItsOffsetsAlong(t *testing.T) {
	filled := func() *Offsets {
		o := NewOffsets(testFiles(t))
		for _, k := range []groupTopic{{group: "G1", topic: "T1"}, {group: "G2", topic: "T1"}, {group: "G1", topic: "T2"}} {
			o.Commit(k.group, k.topic, 0, 1)
			o.CommitPull(k.group, k.topic, 0, 1)
		}
		require.NoError(t, o.Persist())
		return o
	}
	for name, test := range map[string]struct {
		remove func(o *Offsets)
		left   map[string]map[int32]int64
	}{
		"topic": {func(o *Offsets) { o.DeleteTopic("T1") }, map[string]map[int32]int64{"T2@G1": {0: 1}}},
		"group": {func(o *Offsets) { o.DeleteGroup("G1") }, map[string]map[int32]int64{"T1@G2": {0: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := filled()
			test.remove(o)
			require.Equal(t, test.left, o.Snapshot().OffsetTable)
			require.Equal(t, test.left, o.Snapshot().PullOffsetTable)
			require.NoError(t, o.Persist())
			again := NewOffsets(o.files)
			require.NoError(t, again.Load())
			require.Equal(t, test.left, again.Snapshot().OffsetTable, "after a restart, too")
		})
	}
}

func TestMergingWhatTheOtherBrokerHas(t *testing.T) {
	here := map[string]map[int32]int64{"T@G": {0: 10, 1: 10, 2: 10}, "only@here": {0: 1}}
	there := map[string]map[int32]int64{"T@G": {0: 20, 1: 5, 3: 7}, "only@there": {0: 2}}
	for name, test := range map[string]struct {
		policy  MergePolicy
		want    map[string]map[int32]int64
		changed int
		ahead   []Position
	}{
		"follow the master": {
			Follow,
			map[string]map[int32]int64{"T@G": {0: 20, 1: 5, 3: 7}, "only@here": {0: 1}, "only@there": {0: 2}},
			5, nil,
		},
		"never fall": {
			Raise,
			map[string]map[int32]int64{"T@G": {0: 20, 1: 10, 2: 10, 3: 7}, "only@here": {0: 1}, "only@there": {0: 2}},
			3, []Position{{"G", "T", 1, 10}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOffsets(testFiles(t))
			o.consumed.load(here)
			r := o.Merge(offsetTable(there), test.policy)
			require.Equal(t, test.want, o.Snapshot().OffsetTable)
			require.Equal(t, MergeResult{test.changed, test.ahead}, r)
			r = o.Merge(offsetTable(there), test.policy)
			require.Zero(t, r.Changed, "a second time changes nothing")
			there["T@G"][0] = 99
			require.Equal(t, test.want, o.Snapshot().OffsetTable, "the table is nobody else's")
			there["T@G"][0] = 20
		})
	}
}

func TestTheMastersVersionIsTakenOver(t *testing.T) {
	o := NewOffsets(testFiles(t))
	from := offsetTable(map[string]map[int32]int64{"T@G": {0: 1}})
	from.DataVersion = codec.DataVersion{StateVersion: 1, Timestamp: 2, Counter: 3}
	own := o.Snapshot().DataVersion
	o.Merge(from, Raise)
	require.Equal(t, own.Counter+1, o.Snapshot().DataVersion.Counter, "Raise is a change of our own")
	o.Merge(from, Follow)
	require.Equal(t, from.DataVersion, o.Snapshot().DataVersion)
	o.Merge(offsetTable(from.OffsetTable), Follow)
	require.Equal(t, from.DataVersion, o.Snapshot().DataVersion, "4.9 sends none")
	o.Merge(codec.ConsumerOffsets{DataVersion: own}, Follow)
	require.Equal(t, from.DataVersion, o.Snapshot().DataVersion, "an empty table changes nothing")
}

func TestNoNewOffsetsFromTheMasterWriteNothing(t *testing.T) {
	master, o := NewOffsets(testFiles(t)), NewOffsets(testFiles(t))
	master.Commit("G", "T", 0, 1)
	o.Merge(master.Snapshot(), Follow)
	require.NoError(t, o.Persist())
	require.NoError(t, os.RemoveAll(o.files.Dir))
	for range 10 {
		o.Merge(master.Snapshot(), Follow)
		o.Merge(master.Snapshot(), Raise)
		require.NoError(t, o.Persist())
	}
	require.NoDirExists(t, o.files.Dir)
}

func TestKeysOfAnyShapeSurvive(t *testing.T) {
	f := testFiles(t)
	write(t, f, offsetsFile, `{"offsetTable":{"T@G@more":{0:1},"nogroup":{"1":2},"T@G":{}}}`)
	o := NewOffsets(f)
	require.NoError(t, o.Load())
	o.Commit("G", "T", 0, 1)
	require.NoError(t, o.Persist())
	got := text(t, f, offsetsFile)
	for _, key := range []string{`"T@G@more"`, `"nogroup"`, `"T@G"`} {
		require.Contains(t, got, key)
	}
}

func TestThePullOfASlaveIsCompactText(t *testing.T) {
	o := NewOffsets(testFiles(t))
	o.Commit("G", "T", 0, 1)
	require.False(t, strings.ContainsAny(asJSON(t, o.Snapshot()), " \n\t"))
}

func TestOffsetsAreSafeFromManyGoroutines(t *testing.T) {
	o := NewOffsets(testFiles(t))
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 300 {
				o.Commit(fmt.Sprintf("G%d", i%7), "T", int32(g), int64(i))
				o.Query("G0", "T", 0)
				if i%100 == 0 {
					o.DeleteTopic("other")
					o.Merge(o.Snapshot(), Raise)
					o.ByTopic("T")
					if err := o.Persist(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, o.Persist())
	again := NewOffsets(o.files)
	require.NoError(t, again.Load())
	require.Equal(t, o.Snapshot(), again.Snapshot())
}

// Raise is a maximum: whoever merges in whatever order, nobody loses progress.
func TestRaiseKeepsTheFurtherOfTwoAndTellsWhatIsAhead(t *testing.T) {
	table := rapid.MapOf(rapid.SampledFrom([]string{"T@G", "T@H", "U@G"}),
		rapid.MapOfN(rapid.Int32Range(0, 3), rapid.Int64Range(0, 9), 1, 4))
	files := testFiles(t)
	rapid.Check(t, func(t *rapid.T) {
		a, b := NewOffsets(files), NewOffsets(files)
		ta, tb := table.Draw(t, "a"), table.Draw(t, "b")
		a.Merge(offsetTable(ta), Raise)
		r := a.Merge(offsetTable(tb), Raise)
		for _, p := range r.Ahead {
			require.Greater(t, p.Offset, tb[p.Topic+"@"+p.Group][p.Queue])
		}
		b.Merge(offsetTable(tb), Raise)
		for _, p := range r.Ahead {
			b.Commit(p.Group, p.Topic, p.Queue, p.Offset)
		}
		b.Merge(a.Snapshot(), Raise)
		require.Equal(t, a.Snapshot().OffsetTable, b.Snapshot().OffsetTable)
	})
}

func TestDelayOffsetsOfARealBrokerAreReadWhole(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.5.0"} {
		f := capturedFiles(t, version)
		d := NewDelayOffsets(f)
		require.NoError(t, d.Load())
		require.Equal(t, map[int32]int64{1: 1, 2: 1}, d.Snapshot().OffsetTable)
		if version == "5.5.0" {
			require.JSONEq(t, standard(t, text(t, f, delayFile)), asJSON(t, d.Snapshot()))
		}
		d.Update(18, 4)
		require.NoError(t, d.Persist())
		again := NewDelayOffsets(f)
		require.NoError(t, again.Load())
		require.Equal(t, d.Snapshot(), again.Snapshot())
	}
}

func TestDelayProgressIsHeldWithinItsQueue(t *testing.T) {
	for name, test := range map[string]struct{ saved, min, max, want int64 }{
		"within":           {5, 0, 9, 5},
		"at the end":       {9, 0, 9, 9},
		"beyond the end":   {5, 0, 0, 0},
		"before the start": {5, 7, 9, 7},
		"never saved":      {-1, 3, 9, 3},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDelayOffsets(testFiles(t))
			if test.saved >= 0 {
				d.Update(1, test.saved)
			}
			require.Equal(t, test.want, d.Clamp(1, test.min, test.max))
			got, ok := d.Get(1)
			require.True(t, ok)
			require.Equal(t, test.want, got)
		})
	}
}

func TestDelayProgressMerges(t *testing.T) {
	from := codec.DelayOffsets{
		DataVersion: codec.DataVersion{Counter: 9}, OffsetTable: map[int32]int64{1: 5, 2: 50, 4: 1},
	}
	for name, test := range map[string]struct {
		policy  MergePolicy
		want    map[int32]int64
		changed int
	}{
		"follow": {Follow, map[int32]int64{1: 5, 2: 50, 3: 10, 4: 1}, 3},
		"raise":  {Raise, map[int32]int64{1: 10, 2: 50, 3: 10, 4: 1}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			d := NewDelayOffsets(testFiles(t))
			for level := range int32(3) {
				d.Update(level+1, 10)
			}
			own := d.Snapshot().DataVersion
			require.Equal(t, test.changed, d.Merge(from, test.policy))
			require.Equal(t, test.want, d.Snapshot().OffsetTable)
			if test.policy == Follow {
				own = from.DataVersion
			}
			require.Equal(t, own, d.Snapshot().DataVersion)
			require.NoError(t, d.Persist())
			require.NoError(t, os.RemoveAll(d.files.Dir))
			require.Zero(t, d.Merge(from, test.policy))
			d.Merge(codec.DelayOffsets{}, test.policy)
			require.NoError(t, d.Persist())
			require.NoDirExists(t, d.files.Dir, "no news, no file")
		})
	}
}

func TestTheDelayVersionRisesEvery200Updates(t *testing.T) {
	d := NewDelayOffsets(testFiles(t))
	for n := range int64(400) {
		d.Update(1, n+1)
	}
	require.Equal(t, int64(2), d.Snapshot().DataVersion.Counter)
}
