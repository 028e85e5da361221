package tables

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/codec"
)

const readWrite = codec.PermRead | codec.PermWrite

func newTopics(t testing.TB) *Topics { return NewTopics(testFiles(t), BuiltinTopics("C", "b1")) }

func topic(name string, queues int32) codec.TopicConfig {
	return plainTopic(name, queues, readWrite, 0)
}

func TestTopicsOfARealBrokerAreReadWhole(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.5.0"} {
		t.Run(version, func(t *testing.T) {
			f := capturedFiles(t, version)
			topics := NewTopics(f, nil)
			require.NoError(t, topics.Load())
			want := standard(t, text(t, f, topicsFile))
			want = strings.ReplaceAll(want, `"attributes":{},`, "") // absent means empty
			if version == "4.9.7" {
				want = strings.Replace(want, `"counter":`, `"stateVersion":0,"counter":`, 1)
			}
			require.JSONEq(t, want, asJSON(t, topics.Snapshot()))

			require.NoError(t, topics.Persist())
			require.NoFileExists(t, f.path(topicsFile+backupSuffix), "nothing to write")
			topics.Put(topic("New", 1))
			require.NoError(t, topics.Persist())
			again := NewTopics(f, nil)
			require.NoError(t, again.Load())
			require.Equal(t, topics.Snapshot(), again.Snapshot())
		})
	}
}

func TestBuiltinTopicsAreThoseOfARealBroker(t *testing.T) {
	real := NewTopics(capturedFiles(t, "5.5.0"), nil)
	require.NoError(t, real.Load())
	for _, cfg := range BuiltinTopics("C", "b1") {
		got, ok := real.Get(cfg.TopicName)
		require.True(t, ok, cfg.TopicName)
		require.Equal(t, got, cfg)
	}
}

func TestBuiltinTopicsAreThereWithAndWithoutAFile(t *testing.T) {
	topics := newTopics(t)
	require.NoError(t, topics.Load())
	require.Len(t, topics.Snapshot().TopicConfigTable, 10)
	require.NoError(t, topics.Persist())
	require.FileExists(t, topics.files.path(topicsFile), "a first table is written")

	f := testFiles(t)
	write(t, f, topicsFile, `{"dataVersion":{"counter":5,"timestamp":6},"topicConfigTable":{"TBW102":{"perm":6,"readQueueNums":2,"writeQueueNums":2}}}`)
	topics = NewTopics(f, BuiltinTopics("C", "b1"))
	require.NoError(t, topics.Load())
	cfg, ok := topics.Get(DefaultTopic)
	require.True(t, ok)
	require.Equal(t, topic(DefaultTopic, 2), cfg, "the file has the last word")
	require.Len(t, topics.Snapshot().TopicConfigTable, 10)
	require.Equal(t, codec.DataVersion{Timestamp: 6, Counter: 5}, topics.DataVersion())
}

func TestTheFileIsLaidOutAsRocketMQsOwn(t *testing.T) {
	topics := NewTopics(Files{Dir: testFiles(t).Dir, Now: func() int64 { return 42 }}, nil)
	topics.Put(topic("T", 4))
	require.NoError(t, topics.Persist())
	require.Equal(t, `{
	"dataVersion": {
		"stateVersion": 0,
		"timestamp": 42,
		"counter": 1
	},
	"topicConfigTable": {
		"T": {
			"order": false,
			"perm": 6,
			"readQueueNums": 4,
			"topicFilterType": "SINGLE_TAG",
			"topicName": "T",
			"topicSysFlag": 0,
			"writeQueueNums": 4
		}
	}
}`, text(t, topics.files, topicsFile))
}

func TestTheVersionRisesWithEachChangeAndOnlyThen(t *testing.T) {
	topics := newTopics(t)
	version := topics.DataVersion()
	changes := func(want bool, got bool) {
		t.Helper()
		require.Equal(t, want, got)
		if want {
			version.Counter++
			require.Greater(t, topics.DataVersion().Timestamp, version.Timestamp)
			version.Timestamp = topics.DataVersion().Timestamp
		}
		require.Equal(t, version, topics.DataVersion())
	}
	changes(true, topics.Put(topic("T", 4)))
	changes(false, topics.Put(topic("T", 4)))
	changes(true, topics.Put(topic("T", 5)))
	changes(false, topics.Put(codec.TopicConfig{TopicName: "T", ReadQueueNums: 5, WriteQueueNums: 5, Perm: 6, Attributes: map[string]string{}}))
	changes(true, topics.Delete("T"))
	changes(false, topics.Delete("T"))
	_, created := topics.Ensure(topic("R", 1))
	changes(true, created)
	_, created = topics.Ensure(topic("R", 9))
	changes(false, created)
}

func TestASendCreatesItsTopicAfterTheDefaultTopic(t *testing.T) {
	open, closed := CreateRules{AutoCreate: true}, CreateRules{}
	for name, test := range map[string]struct {
		topic, model string
		queues       int32
		rules        CreateRules
		ok           bool
		want         int32 // queues
		perm         int32
	}{
		"as many queues as asked for":         {"T", DefaultTopic, 4, open, true, 4, readWrite},
		"not more than the model has":         {"T", DefaultTopic, 99, open, true, 8, readWrite},
		"as the model if none are asked for":  {"T", DefaultTopic, 0, open, true, 8, readWrite},
		"as the model if negative":            {"T", DefaultTopic, -3, open, true, 8, readWrite},
		"not if creation is off":              {"T", DefaultTopic, 4, closed, false, 0, 0},
		"after another model though it's off": {"T", "C", 32, closed, true, 16, readWrite},
		"not after a model without the bit":   {"T", SelfTestTopic, 4, open, false, 0, 0},
		"not after no model":                  {"T", "nothing", 4, open, false, 0, 0},
		"the model's other permissions":       {"T", "readonly", 4, open, true, 2, codec.PermRead},
		"a retry topic though it's off":       {"%RETRY%g", DefaultTopic, 4, closed, true, 1, readWrite},
		"a retry topic after the model":       {"%RETRY%g", DefaultTopic, 4, open, true, 4, readWrite},
		"one that is there stays":             {"there", DefaultTopic, 4, closed, true, 3, readWrite},
	} {
		t.Run(name, func(t *testing.T) {
			topics := newTopics(t)
			topics.Put(topic("there", 3))
			topics.Put(plainTopic("readonly", 2, codec.PermRead|codec.PermInherit, 0))
			cfg, created, ok := topics.EnsureDefault(test.topic, test.model, test.queues, test.rules)
			require.Equal(t, test.ok, ok)
			require.Equal(t, test.ok && test.topic != "there", created)
			got, there := topics.Get(test.topic)
			require.Equal(t, test.ok, there)
			require.Equal(t, cfg, got)
			if test.ok {
				require.Equal(t, plainTopic(test.topic, test.want, test.perm, 0), cfg)
				_, created, _ = topics.EnsureDefault(test.topic, test.model, test.queues, test.rules)
				require.False(t, created, "once")
			}
		})
	}
}

func TestTheTableBecomesTheMasters(t *testing.T) {
	topics := newTopics(t)
	for name, queues := range map[string]int32{"stays": 1, "changes": 1, "goes": 1} {
		topics.Put(topic(name, queues))
	}
	master := newTopics(t)
	master.files.Now = func() int64 { return 5 }
	for name, queues := range map[string]int32{"stays": 1, "changes": 2, "comes": 1} {
		master.Put(topic(name, queues))
	}
	master.Delete(BenchmarkTopic)

	added, changed, removed, dirty := topics.Replace(master.Snapshot())
	slices.Sort(removed)
	require.Equal(t, []string{"comes"}, added)
	require.Equal(t, []string{"changes"}, changed)
	require.Equal(t, []string{BenchmarkTopic, "goes"}, removed)
	require.True(t, dirty)
	require.Equal(t, master.Snapshot(), topics.Snapshot(), "the version too")
	require.Equal(t, []string{BenchmarkTopic}, topics.EnsureBuiltin(), "for when it becomes the master")
}

func TestNoNewsFromTheMasterWritesNothing(t *testing.T) {
	master := newTopics(t)
	master.Put(topic("T", 1))
	topics := newTopics(t)
	topics.Replace(master.Snapshot())
	restarted := NewTopics(topics.files, BuiltinTopics("C", "b1"))
	require.NoError(t, topics.Persist())
	require.NoError(t, restarted.Load())
	require.NoError(t, os.RemoveAll(topics.files.Dir))
	for i := range 20 {
		if i == 10 {
			topics = restarted
		}
		added, changed, removed, dirty := topics.Replace(master.Snapshot())
		require.Empty(t, slices.Concat(added, changed, removed))
		require.False(t, dirty)
		require.NoError(t, topics.Persist())
	}
	require.NoDirExists(t, topics.files.Dir)
}

func TestANewVersionOfTheSameTableIsKept(t *testing.T) {
	master, topics := newTopics(t), newTopics(t)
	master.Put(topic("T", 1))
	topics.Replace(master.Snapshot())
	master.Delete("T")
	master.Put(topic("T", 1))
	added, changed, removed, dirty := topics.Replace(master.Snapshot())
	require.Empty(t, slices.Concat(added, changed, removed))
	require.True(t, dirty)
	require.Equal(t, master.DataVersion(), topics.DataVersion())
}

func TestAnEqualVersionByChanceHidesNoChange(t *testing.T) {
	master, topics := newTopics(t), newTopics(t)
	topics.Replace(master.Snapshot())
	sameTime := func() int64 { return 7 }
	master.files.Now, topics.files.Now = sameTime, sameTime
	master.Put(topic("on the master", 1))
	topics.Put(topic("on the slave", 1))
	require.Equal(t, master.DataVersion(), topics.DataVersion())
	added, _, removed, dirty := topics.Replace(master.Snapshot())
	require.Equal(t, []string{"on the master"}, added)
	require.Equal(t, []string{"on the slave"}, removed)
	require.True(t, dirty)
}

func TestAnEmptyTableIsNeverTheTruth(t *testing.T) {
	topics := newTopics(t)
	before := topics.Snapshot()
	for _, from := range []codec.TopicConfigs{
		{}, {DataVersion: codec.DataVersion{Counter: 9}}, {TopicConfigTable: map[string]codec.TopicConfig{}},
	} {
		_, _, removed, dirty := topics.Replace(from)
		require.Empty(t, removed)
		require.False(t, dirty)
		require.Equal(t, before, topics.Snapshot())
	}
}

func TestWhatASenderLeavesOutIsFilledIn(t *testing.T) {
	topics := newTopics(t)
	topics.Replace(codec.TopicConfigs{TopicConfigTable: map[string]codec.TopicConfig{"T": {Perm: 6}}})
	cfg, _ := topics.Get("T")
	require.Equal(t, "T", cfg.TopicName)
	require.Equal(t, "SINGLE_TAG", cfg.TopicFilterType)
}

func TestTheTableIsNobodyElses(t *testing.T) {
	topics := newTopics(t)
	cfg := topic("T", 1)
	cfg.Attributes = map[string]string{"a": "b"}
	topics.Put(cfg)
	cfg.Attributes["a"] = "c"
	snapshot := topics.Snapshot()
	delete(snapshot.TopicConfigTable, "T")
	got, ok := topics.Get("T")
	require.True(t, ok)
	require.Equal(t, "b", got.Attributes["a"])
}

func TestATopicBothHaveIsNeverMissingDuringASync(t *testing.T) {
	topics := newTopics(t)
	table := map[string]codec.TopicConfig{}
	for i := range 2000 {
		table[fmt.Sprintf("T%d", i)] = topic("", 4)
	}
	from := codec.TopicConfigs{TopicConfigTable: table, DataVersion: codec.DataVersion{Counter: 1}}
	topics.Replace(from)

	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				if _, ok := topics.Find(fmt.Appendf(nil, "T%d", i%2000)); !ok {
					t.Errorf("T%d is missing", i%2000)
					return
				}
			}
		})
	}
	for n := range int64(50) {
		other := maps.Clone(table)
		other[fmt.Sprintf("only in %d", n)] = topic("", 1)
		for i := range 100 {
			other[fmt.Sprintf("T%d", i)] = topic("", int32(n))
		}
		topics.Replace(codec.TopicConfigs{TopicConfigTable: other, DataVersion: codec.DataVersion{Counter: n + 2}})
	}
	close(done)
	readers.Wait()
}

func TestTopicsAreSafeFromManyGoroutines(t *testing.T) {
	topics := newTopics(t)
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range 50 {
				name := fmt.Sprintf("T%d", i)
				topics.EnsureDefault(name, DefaultTopic, 4, CreateRules{AutoCreate: true})
				topics.Put(topic(name, int32(g)))
				topics.Get(name)
				if i%10 == g {
					topics.Delete(name)
					if err := topics.Persist(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, topics.Persist())
	again := NewTopics(topics.files, nil)
	require.NoError(t, again.Load())
	require.Equal(t, topics.Snapshot(), again.Snapshot())
}

func TestLookingUpATopicDoesNotAllocate(t *testing.T) {
	topics := newTopics(t)
	name := []byte(HalfTopic)
	require.Zero(t, testing.AllocsPerRun(100, func() { topics.Find(name) }))
	require.Zero(t, testing.AllocsPerRun(100, func() { topics.Get(HalfTopic) }))
}

// A slave that takes any of the tables its master ever had is the master's twin.
func TestASlavesTableFollowsTheMasters(t *testing.T) {
	files := testFiles(t)
	rapid.Check(t, func(t *rapid.T) {
		master, slave := NewTopics(files, BuiltinTopics("C", "b1")), NewTopics(files, BuiltinTopics("C", "b1"))
		name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
		change := func(table *Topics) func(*rapid.T) {
			return func(t *rapid.T) {
				if rapid.Bool().Draw(t, "delete") {
					table.Delete(name.Draw(t, "name"))
				} else {
					table.Put(topic(name.Draw(t, "name"), rapid.Int32Range(1, 3).Draw(t, "queues")))
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"master": change(master),
			"slave":  change(slave),
			"sync": func(t *rapid.T) {
				before := slave.Snapshot().TopicConfigTable
				added, changed, removed, dirty := slave.Replace(master.Snapshot())
				require.Equal(t, master.Snapshot(), slave.Snapshot())
				for _, n := range slices.Concat(added, changed) {
					before[n] = master.Snapshot().TopicConfigTable[n]
				}
				for _, n := range removed {
					delete(before, n)
				}
				require.Equal(t, before, slave.Snapshot().TopicConfigTable, "the diff is what happened")
				require.True(t, dirty || len(added)+len(changed)+len(removed) == 0)
			},
		})
	})
}
