package tables

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

func newGroups(t testing.TB) *Groups { return NewGroups(testFiles(t), BuiltinGroups()) }

func TestGroupsOfARealBrokerAreReadWhole(t *testing.T) {
	t.Run("5.5.0", func(t *testing.T) {
		f := capturedFiles(t, "5.5.0")
		groups := NewGroups(f, nil)
		require.NoError(t, groups.Load())
		want := strings.ReplaceAll(standard(t, text(t, f, groupsFile)), `"attributes":{},`, "")
		require.JSONEq(t, want, asJSON(t, groups.Snapshot()))
		roundTrip(t, groups)
	})
	t.Run("4.9.7", func(t *testing.T) {
		groups := NewGroups(capturedFiles(t, "4.9.7"), nil)
		require.NoError(t, groups.Load())
		got, ok := groups.Get("HB")
		require.True(t, ok)
		require.Equal(t, codec.NewSubscriptionGroup("HB"), got, "what 4.9 has no word for is at its default")
		require.Equal(t, codec.DataVersion{Timestamp: 1795959134674, Counter: 1}, groups.DataVersion())
		roundTrip(t, groups)
	})
}

func roundTrip(t *testing.T, groups *Groups) {
	groups.Put(codec.NewSubscriptionGroup("New"))
	require.NoError(t, groups.Persist())
	again := NewGroups(groups.files, nil)
	require.NoError(t, again.Load())
	require.Equal(t, groups.Snapshot(), again.Snapshot())
}

func TestBuiltinGroupsAreThoseOfARealBroker(t *testing.T) {
	real := NewGroups(capturedFiles(t, "5.5.0"), nil)
	require.NoError(t, real.Load())
	builtin := BuiltinGroups()
	require.Len(t, builtin, len(real.Snapshot().SubscriptionGroupTable)-1, "all but the one that consumed")
	for _, cfg := range builtin {
		got, ok := real.Get(cfg.GroupName)
		require.True(t, ok, cfg.GroupName)
		got.GroupRetryPolicy = nil // the default, spelled out
		require.Equal(t, got, cfg)
	}
}

func TestAGroupIsCreatedWithTheDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		group      string
		autoCreate bool
		ok         bool
	}{
		"if that is on":                  {"G", true, true},
		"not if it is off":               {"G", false, false},
		"a system group always":          {"CID_RMQ_SYS_X", false, true},
		"not with an illegal name":       {"a b", true, false},
		"not without a name":             {"", true, false},
		"not with too long a name":       {strings.Repeat("x", 128), true, false},
		"with the longest name possible": {strings.Repeat("x", 127), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			groups := newGroups(t)
			before := groups.DataVersion().Counter
			cfg, created, ok := groups.EnsureDefault(test.group, test.autoCreate)
			require.Equal(t, test.ok, ok)
			require.Equal(t, test.ok, created)
			if !ok {
				require.Equal(t, before, groups.DataVersion().Counter)
				return
			}
			require.Equal(t, before+1, groups.DataVersion().Counter)
			require.Equal(t, int32(1), cfg.RetryQueueNums)
			require.Equal(t, int32(16), cfg.RetryMaxTimes)
			_, created, ok = groups.EnsureDefault(test.group, false)
			require.True(t, ok)
			require.False(t, created)
		})
	}
}

func TestTheGroupsBecomeTheMasters(t *testing.T) {
	master, groups := newGroups(t), newGroups(t)
	master.Put(codec.NewSubscriptionGroup("comes"))
	master.setForbidden(forbiddenTable{"comes": {"T": 1}})
	changes := codec.NewSubscriptionGroup("TOOLS_CONSUMER")
	changes.RetryMaxTimes = 3
	master.Put(changes)
	groups.Put(codec.NewSubscriptionGroup("goes"))

	added, changed, removed, dirty := groups.Replace(master.Snapshot())
	require.Equal(t, []string{"comes"}, added)
	require.Equal(t, []string{"TOOLS_CONSUMER"}, changed)
	require.Equal(t, []string{"goes"}, removed)
	require.True(t, dirty)
	require.Equal(t, master.Snapshot(), groups.Snapshot())
	require.NoError(t, groups.Persist())

	again := NewGroups(groups.files, nil)
	require.NoError(t, again.Load())
	require.Equal(t, master.Snapshot(), again.Snapshot(), "forbidden table and all")

	require.NoError(t, os.RemoveAll(groups.files.Dir))
	for range 10 {
		added, changed, removed, dirty = groups.Replace(master.Snapshot())
		require.Empty(t, slices.Concat(added, changed, removed))
		require.False(t, dirty)
		require.NoError(t, groups.Persist())
	}
	require.NoDirExists(t, groups.files.Dir, "no news, no file")
	_, _, removed, _ = groups.Replace(codec.SubscriptionGroups{DataVersion: codec.DataVersion{Counter: 99}})
	require.Empty(t, removed, "an empty table is not the truth")
}

func TestGroupsCanBeDeleted(t *testing.T) {
	groups := newGroups(t)
	require.False(t, groups.Delete("G"))
	groups.EnsureDefault("G", true)
	require.True(t, groups.Delete("G"))
	_, ok := groups.Find([]byte("G"))
	require.False(t, ok)
}

func TestGroupsAreSafeFromManyGoroutines(t *testing.T) {
	groups, master := newGroups(t), newGroups(t)
	var all sync.WaitGroup
	for g := range 3 {
		all.Go(func() {
			for i := range 30 {
				groups.EnsureDefault(fmt.Sprintf("G%d-%d", g, i), true)
				master.EnsureDefault(fmt.Sprintf("M%d-%d", g, i), true)
				groups.Replace(master.Snapshot())
				if i%10 == 0 {
					if err := groups.Persist(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	groups.Replace(master.Snapshot())
	require.Equal(t, master.Snapshot(), groups.Snapshot())
}
