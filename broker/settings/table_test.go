package settings

import (
	"bytes"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/settings.md anew")

func TestEverySettingIsDescribedInFull(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range Table() {
		require.False(t, seen[s.Key], "%s stands in the table twice", s.Key)
		seen[s.Key] = true
		require.Contains(t, Groups(), s.Group, s.Key)
		require.NotEmpty(t, s.Help, s.Key)
		require.NotContains(t, s.Help, "\n", s.Key)
		require.False(t, strings.HasSuffix(s.Help, "."), s.Key)
		require.NotEmpty(t, s.Valid(), s.Key)
		require.NotEmpty(t, s.Default+s.DefaultText, s.Key)
		require.Equal(t, s.Kind == KindEnum, len(s.Values) > 0, s.Key)
		switch s.Kind {
		case KindMillis:
			require.Equal(t, "ms", s.Unit, s.Key)
		case KindSize:
			require.Equal(t, "bytes", s.Unit, s.Key)
		case KindInt, KindInt64:
			require.Greater(t, s.Max, s.Min, s.Key)
		}
	}
	require.LessOrEqual(t, len(seen), maxSettings)
}

func TestSettingsThatRocketMQHasAreSpelledAsThere(t *testing.T) {
	for _, s := range Table() {
		require.Equal(t, !s.New, isRocketMQKey(s.Key), "%s: is it RocketMQ's, or tandem's own?", s.Key)
		for _, alias := range s.Aliases {
			require.True(t, isRocketMQKey(alias), alias)
		}
	}
}

func TestEveryFieldIsHeldToItsOwnRange(t *testing.T) {
	for _, s := range Table() {
		if s.Kind == KindString || s.Kind == KindEnum || s.Kind == KindBool {
			continue
		}
		var into Settings
		for _, n := range []int64{s.Min, s.Max} {
			require.Empty(t, s.parse(&into, formatInt(n)), "%s=%d", s.Key, n)
			require.Equal(t, formatInt(n), s.format(&into), s.Key)
		}
		require.NotEmpty(t, s.parse(&into, formatInt(s.Min-1)), "%s=%d", s.Key, s.Min-1)
		require.Equal(t, formatInt(s.Max), s.format(&into), "%s: a refused value must change nothing", s.Key)
	}
}

func TestRocketMQKeysAreSortedAndStopKeysAreAmongThem(t *testing.T) {
	keys := strings.Fields(rocketMQKeys)
	require.True(t, slices.IsSorted(keys))
	require.Equal(t, keys, slices.Compact(slices.Clone(keys)))
	for key, rule := range foreignRules() {
		require.True(t, isRocketMQKey(key), key)
		require.NotEmpty(t, rule.text, key)
		_, ours := lookup(key)
		require.False(t, ours, "%s is tandem's too, its rule would never be asked", key)
	}
}

func TestChangingAReturnedTableChangesNobodyElses(t *testing.T) {
	Table()[0].Key = "gone"
	require.Equal(t, "brokerClusterName", Table()[0].Key)
}

func TestDocumentationIsMadeFromTheTable(t *testing.T) {
	const page = "../../docs/settings.md"
	var want bytes.Buffer
	require.NoError(t, WriteMarkdown(&want))
	if *update {
		require.NoError(t, os.MkdirAll("../../docs", 0o755))
		require.NoError(t, os.WriteFile(page, want.Bytes(), 0o644))
	}
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, want.String(), string(have), "out of date: go generate ./broker/settings")
}
