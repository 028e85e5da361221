package codec

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPropertiesTextIsReadAsJavaReadsIt(t *testing.T) {
	pairs := func(text string) (out [][2]string) {
		EachProperty([]byte(text), func(name, value []byte) bool {
			out = append(out, [2]string{string(name), string(value)})
			return true
		})
		return out
	}
	ab := [][2]string{{"a", "1"}, {"b", "2"}}
	require.Equal(t, ab, pairs("a\x011\x02b\x012\x02"), "closed")
	require.Equal(t, ab, pairs("a\x011\x02b\x012"), "open end, as 4.9 writes it")
	require.Equal(t, ab, pairs("\x02\x02a\x011\x02xx\x02\x01v\x02n\x01\x02b\x012"), "pairs that do not count")
	require.Equal(t, [][2]string{{"a", "1\x01x"}}, pairs("a\x011\x01x"))
	require.Empty(t, pairs(""))

	value, ok := Property([]byte("k\x011\x02k\x012\x02kk\x013"), "k")
	require.True(t, ok)
	require.Equal(t, "2", string(value), "the last of two counts")
	_, ok = Property([]byte("kk\x013"), "k")
	require.False(t, ok)
}

func TestMarksAreWhatThePropertiesAskFor(t *testing.T) {
	for text, want := range map[string]Marks{
		"": {}, "A\x011\x02": {}, "WAIT\x01true\x02": {}, "WAIT\x01false\x02": {NoWait: true}, "WAIT\x01false\x02WAIT\x01true\x02": {},
		"DELAY\x010\x02": {}, "DELAY\x013": {Delayed: true}, "TIMER_DELAY_SEC\x011": {Delayed: true}, "TIMER_DELAY_MS\x011": {Delayed: true},
		"TIMER_DELIVER_MS\x010": {Delayed: true}, "TRAN_MSG\x01true\x02": {Transaction: true}, "TRAN_MSG\x01false\x02": {},
		"UNIQ_KEY\x01a\x02KEYS\x01k\x02UNIQ_KEY\x01b": {UniqueKey: []byte("b")}, "UNIQ_KEY\x01\x02": {},
	} {
		require.Equal(t, want, ReadMarks([]byte(text)), "%q", text)
	}
}

func TestPropertiesAreOpenUntilTheLastPairHasItsEnd(t *testing.T) {
	require.False(t, OpenProperties(nil))
	require.True(t, OpenProperties([]byte("a\x011")))
	require.False(t, OpenProperties([]byte("a\x011\x02")))
}

func TestEachPropertyStopsWhenToldTo(t *testing.T) {
	calls := 0
	EachProperty([]byte("a\x011\x02b\x012"), func(_, _ []byte) bool { calls++; return false })
	require.Equal(t, 1, calls)
}

func TestAppendPropertyKeepsTheClientsBytesAndClosesThem(t *testing.T) {
	require.Equal(t, "a\x011\x02b\x012\x02", string(AppendProperty([]byte("a\x011"), "b", "2")))
	require.Equal(t, "a\x011\x02b\x012\x02", string(AppendProperty([]byte("a\x011\x02"), "b", []byte("2"))))
	require.Equal(t, "a\x011", string(AppendProperty([]byte("a\x011"), "b", "")), "no value, no pair")
	require.Equal(t, "b\x012\x02", string(AppendPropertiesExcept(nil, []byte("a\x011\x02b\x012\x02c\x013"), "a", "c")))
}

func TestPropertiesComeBackAsTheyWereWritten(t *testing.T) {
	word := rapid.StringMatching(`[^\x01\x02]{1,12}`)
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.MapOf(word, word).Draw(t, "properties")
		var text []byte
		for name, value := range want {
			text = AppendProperty(text, name, value)
		}
		if len(text) > 0 && rapid.Bool().Draw(t, "open end") {
			text = text[:len(text)-1]
		}
		got := map[string]string{}
		EachProperty(text, func(name, value []byte) bool { got[string(name)] = string(value); return true })
		require.Equal(t, len(want), len(got))
		for name, value := range want {
			require.Equal(t, value, got[name])
			p, ok := Property(text, name)
			require.True(t, ok)
			require.Equal(t, value, string(p))
		}
	})
}

func TestCapturedBatchesSplitIntoTheirRows(t *testing.T) {
	for _, version := range []string{"4.9.7", "5.5.0"} {
		c, err := DecodeFrame(capturedFrames(t)["client-"+version+"/320-send-batch.req"])
		require.NoError(t, err)
		var again []byte
		rest := c.Body
		for i := 0; i < 3; i++ {
			var row BatchRow
			row, rest, err = NextBatchRow(rest)
			require.NoError(t, err)
			require.Equal(t, "b"+strconv.Itoa(i), string(row.Body))
			tag, _ := Property(row.Properties, PropTags)
			require.Equal(t, "TagB", string(tag))
			again = AppendBatchRow(again, row)
		}
		require.Empty(t, rest)
		require.Equal(t, c.Body, again)
	}
}

func TestBatchesComeBackAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var body []byte
		var want []BatchRow
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			row := BatchRow{Flag: rapid.Int32().Draw(t, "flag"), Body: genBytes(100).Draw(t, "body"), Properties: genBytes(100).Draw(t, "properties")}
			want = append(want, row)
			body = AppendBatchRow(body, row)
		}
		for _, w := range want {
			row, rest, err := NextBatchRow(body)
			require.NoError(t, err)
			require.Equal(t, w, row)
			body = rest
		}
		require.Empty(t, body)
	})
}

func TestBatchRowsThatDoNotFitTheirLengthsAreRefused(t *testing.T) {
	good := AppendBatchRow(nil, BatchRow{Body: []byte("body"), Properties: []byte("a\x011")})
	put := func(at int, v uint32) []byte {
		b := append([]byte(nil), good...)
		binary.BigEndian.PutUint32(b[at:], v)
		return b
	}
	cut := append([]byte(nil), good...)
	cut[len(cut)-4]-- // properties length
	for name, b := range map[string][]byte{
		"empty": nil, "cut": good[:len(good)-1], "size zero": put(0, 0), "size negative": put(0, 1<<31), "size too large": put(0, 1000),
		"body negative": put(16, 1<<31), "body too large": put(16, 8), "properties too short": cut,
	} {
		_, _, err := NextBatchRow(b)
		require.ErrorIs(t, err, ErrBatch, name)
	}
	huge := AppendBatchRow(nil, BatchRow{Properties: make([]byte, MaxPropertiesLen+1)})
	_, _, err := NextBatchRow(huge)
	require.ErrorIs(t, err, ErrBatch, "a record could not hold them")
}

func TestCapturedReplicationStreamsAreTheLogInFrames(t *testing.T) {
	paths, err := filepath.Glob("testdata/ha/*.bin")
	require.NoError(t, err)
	require.Len(t, paths, 6)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			stream, err := os.ReadFile(path)
			require.NoError(t, err)
			version := regexp.MustCompile(`\d\.\d\.\d`).FindString(path)
			next, bytes := int64(-1), 0
			for len(stream) > 0 {
				offset, body, rest, err := NextHAFrame(stream, 32768)
				require.NoError(t, err)
				if next >= 0 {
					require.Equal(t, next, offset, "frames join without a gap")
				}
				requireLogBytes(t, version, offset, body)
				next, bytes, stream = offset+int64(len(body)), bytes+len(body), rest
			}
			require.Positive(t, bytes)
		})
	}
}

func requireLogBytes(t *testing.T, version string, offset int64, body []byte) {
	t.Helper()
	if len(body) == 0 {
		return
	}
	const segmentSize = 16384
	name := strconv.FormatInt(offset-offset%segmentSize, 10)
	name = "00000000000000000000"[len(name):] + name
	segment, err := os.ReadFile(filepath.Join("testdata/commitlog", version, name))
	require.NoError(t, err)
	at := int(offset % segmentSize)
	require.LessOrEqual(t, at+len(body), segmentSize, "no frame crosses a segment's end")
	require.Equal(t, segment[at:at+len(body)], body)
}

func TestReplicationFramesComeBackAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		offset, body := rapid.Int64Min(0).Draw(t, "offset"), genBytes(64).Draw(t, "body")
		b := make([]byte, HAHeaderSize)
		PutHAHeader(b, offset, int32(len(body)))
		b = append(b, body...)
		gotOffset, gotBody, rest, err := NextHAFrame(append(b, "next"...), 64)
		require.NoError(t, err)
		require.Equal(t, offset, gotOffset)
		require.Equal(t, body, gotBody)
		require.Equal(t, "next", string(rest))
		for n := range b {
			_, _, _, err = NextHAFrame(b[:n], 64)
			require.ErrorIs(t, err, ErrHAShort)
		}
		PutHAReport(b, offset)
		require.Equal(t, offset, ParseHAReport(b))
	})
	for _, c := range []struct {
		offset int64
		n      int32
	}{{-1, 0}, {0, -1}, {0, 65}} {
		var b [HAHeaderSize]byte
		PutHAHeader(b[:], c.offset, c.n)
		_, _, _, err := NextHAFrame(b[:], 64)
		require.ErrorIs(t, err, ErrHAFrame)
	}
}
