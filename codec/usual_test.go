package codec

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// requireUsualAgrees checks that the quick look at a record finds what the thorough one finds, or leaves it to that.
func requireUsualAgrees(t require.TestingT, b []byte) bool {
	quick, ok := usualLayout(b)
	if !ok {
		return false
	}
	thorough, err := layoutOf(b)
	require.NoError(t, err)
	require.Equal(t, thorough, quick)
	return true
}

func TestUsualLayoutIsThatOfTheThoroughLook(t *testing.T) {
	usual := 0
	var raws [][]byte
	count, _ := eachCapturedRecord(t, func(raw []byte, _ *Record) {
		raws = append(raws, raw)
		if requireUsualAgrees(t, raw) {
			usual++
		}
	})
	require.Greater(t, usual, count/2)
	rapid.Check(t, func(rt *rapid.T) {
		b := append([]byte(nil), rapid.SampledFrom(raws).Draw(rt, "record")...)
		for range rapid.IntRange(0, 3).Draw(rt, "changes") {
			b[rapid.IntRange(0, len(b)-1).Draw(rt, "at")] = rapid.Byte().Draw(rt, "byte")
		}
		requireUsualAgrees(rt, b[:rapid.IntRange(0, len(b)).Draw(rt, "len")])
		requireUsualAgrees(rt, append(b, rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(rt, "behind")...))
	})
}

func TestTagIsThePropertyOfThatName(t *testing.T) {
	part := rapid.SampledFrom([]string{"TAGS", "G", "TAG", "\x01", "\x02", "x", "S\x01", "TAGS\x01v", "T", "A"})
	rapid.Check(t, func(rt *rapid.T) {
		var props []byte
		for _, p := range rapid.SliceOfN(part, 0, 12).Draw(rt, "parts") {
			props = append(props, p...)
		}
		want, wantOK := Property(props, PropTags)
		got, ok := Tag(props)
		require.Equal(rt, wantOK, ok, "%q", props)
		require.Equal(rt, string(want), string(got), "%q", props)
	})
}
