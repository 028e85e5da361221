package codec

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// capturedSegments are the segments below testdata/commitlog, by path.
func capturedSegments(t testing.TB) map[string][]byte {
	t.Helper()
	segments := map[string][]byte{}
	paths, err := filepath.Glob("testdata/commitlog/*/*")
	require.NoError(t, err)
	require.Len(t, paths, 6)
	for _, path := range paths {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		segments[path] = b
	}
	return segments
}

// eachCapturedRecord calls f for every record of the captured logs.
func eachCapturedRecord(t testing.TB, f func(raw []byte, r *Record)) (count, blanks int) {
	t.Helper()
	for path, segment := range capturedSegments(t) {
		for pos := 0; pos < len(segment); {
			var r Record
			size, err := r.Decode(segment[pos:])
			if errors.Is(err, ErrRecordEmpty) {
				break
			}
			if errors.Is(err, ErrRecordBlank) {
				require.Equal(t, len(segment), pos+size, path)
				blanks++
				break
			}
			require.NoError(t, err, "%s at %d", path, pos)
			f(segment[pos:pos+size], &r)
			count++
			pos += size
		}
	}
	return count, blanks
}

func TestCapturedRecordsDecodeAndEncodeToTheSameBytes(t *testing.T) {
	count, blanks := eachCapturedRecord(t, func(raw []byte, r *Record) {
		require.Equal(t, len(raw), r.Size())
		require.Equal(t, raw, r.Append(nil))
		patched := r.Append(nil)
		PatchRecord(patched, 1, 2, 3)
		PatchRecord(patched, r.QueueOffset, r.PhysicalOffset, r.StoreTimestamp)
		require.Equal(t, raw, patched)
	})
	require.Greater(t, count, 250)
	require.Equal(t, 4, blanks)
}

func TestEveryPrefixOfARecordIsShortNeverCorrupt(t *testing.T) {
	eachCapturedRecord(t, func(raw []byte, _ *Record) {
		for n := range raw {
			_, err := new(Record).Decode(raw[:n:n])
			require.ErrorIs(t, err, ErrRecordShort, "%d of %d bytes", n, len(raw))
		}
	})
	v6 := sampleV6()
	raw := v6.Append(nil)
	for n := range raw {
		_, err := new(Record).Decode(raw[:n:n])
		require.ErrorIs(t, err, ErrRecordShort)
	}
}

func sampleV6() Record {
	return Record{
		QueueID: 3, Flag: 7, QueueOffset: 11, PhysicalOffset: 1 << 40, SysFlag: SysCompressed, BornTimestamp: 1700000000001,
		BornHost: netip.MustParseAddrPort("[2001:db8::1]:40000"), StoreTimestamp: 1700000000002,
		StoreHost: netip.MustParseAddrPort("[fe80::2]:10911"), ReconsumeTimes: 2, PreparedTransactionOffset: 99,
		Body: []byte("hello"), Topic: []byte(strings.Repeat("t", 200)), Properties: []byte("KEYS\x01k\x02"),
	}
}

func sampleV4() Record {
	r := sampleV6()
	r.BornHost, r.StoreHost = netip.MustParseAddrPort("10.1.2.3:40000"), netip.MustParseAddrPort("10.1.2.4:10911")
	r.Topic = []byte("TopicA")
	return r
}

func TestBodyCRCIsTheOneJavaComputes(t *testing.T) {
	require.Equal(t, uint32(907060870), BodyCRC([]byte("hello")))
	require.Equal(t, uint32(0), BodyCRC(nil))
}

func TestFixedOffsetsOfAnIPv4Record(t *testing.T) {
	r := sampleV4()
	b := r.Append(nil)
	be := binary.BigEndian
	require.Equal(t, uint32(len(b)), be.Uint32(b))
	require.Equal(t, uint32(0xDAA320A7), be.Uint32(b[4:]))
	require.Equal(t, uint32(907060870), be.Uint32(b[8:]))
	require.Equal(t, uint32(3), be.Uint32(b[12:]))
	require.Equal(t, uint32(7), be.Uint32(b[16:]))
	require.Equal(t, uint64(11), be.Uint64(b[20:]))
	require.Equal(t, uint64(1<<40), be.Uint64(b[28:]))
	require.Equal(t, uint32(SysCompressed), be.Uint32(b[36:]))
	require.Equal(t, uint64(1700000000001), be.Uint64(b[40:]))
	require.Equal(t, []byte{10, 1, 2, 3, 0, 0, 0x9C, 0x40}, b[48:56])
	require.Equal(t, uint64(1700000000002), be.Uint64(b[56:]))
	require.Equal(t, []byte{10, 1, 2, 4, 0, 0, 0x2A, 0x9F}, b[64:72])
	require.Equal(t, uint32(2), be.Uint32(b[72:]))
	require.Equal(t, uint64(99), be.Uint64(b[76:]))
	require.Equal(t, uint32(5), be.Uint32(b[84:]))
	require.Equal(t, "hello\x06TopicA\x00\x07KEYS\x01k\x02", string(b[88:]))
	empty := Record{}
	require.Len(t, empty.Append(nil), MinRecordSize)
}

func TestALongTopicMakesTheRecordV2(t *testing.T) {
	r := sampleV4()
	r.Topic = []byte(strings.Repeat("t", 127))
	require.Equal(t, uint32(0xDAA320A7), binary.BigEndian.Uint32(r.Append(nil)[4:]))
	r.Topic = append(r.Topic, 't')
	require.Equal(t, uint32(0xDAA320AB), binary.BigEndian.Uint32(r.Append(nil)[4:]))
}

func TestPatchRecordHonoursAnIPv6BornHost(t *testing.T) {
	for _, r := range []Record{sampleV4(), sampleV6()} {
		b := r.Append(nil)
		PatchRecord(b, 1001, 1002, 1003)
		var got Record
		_, err := got.Decode(b)
		require.NoError(t, err)
		require.Equal(t, []int64{1001, 1002, 1003}, []int64{got.QueueOffset, got.PhysicalOffset, got.StoreTimestamp})
		require.Equal(t, r.BornTimestamp, got.BornTimestamp)
		require.Equal(t, r.StoreHost, got.StoreHost)
	}
}

func TestRecordDamageIsToldApart(t *testing.T) {
	good := func() []byte { r := sampleV4(); return r.Append(nil) }
	put32 := func(at int, v uint32) func([]byte) []byte {
		return func(b []byte) []byte { binary.BigEndian.PutUint32(b[at:], v); return b }
	}
	for name, c := range map[string]struct {
		damage func([]byte) []byte
		want   error
	}{
		"nothing there":               {func([]byte) []byte { return nil }, ErrRecordShort},
		"three bytes":                 {func(b []byte) []byte { return b[:3] }, ErrRecordShort},
		"size zero":                   {put32(0, 0), ErrRecordEmpty},
		"size negative":               {put32(0, 0xFFFFFFFF), ErrRecordCorrupt},
		"size below eight, cut":       {func(b []byte) []byte { return put32(0, 7)(b)[:4] }, ErrRecordCorrupt},
		"size below the fixed part":   {put32(0, 90), ErrRecordCorrupt},
		"size beyond all bounds":      {put32(0, MaxRecordSize+1), ErrRecordCorrupt},
		"size one too small":          {func(b []byte) []byte { return put32(0, uint32(len(b)-1))(b) }, ErrRecordCorrupt},
		"size one too large":          {func(b []byte) []byte { return append(put32(0, uint32(len(b)+1))(b), 0) }, ErrRecordCorrupt},
		"unknown magic":               {put32(4, 0xDAA320A8), ErrRecordCorrupt},
		"magic of the other form":     {put32(4, 0xDAA320AB), ErrRecordCorrupt},
		"body length negative":        {put32(84, 0x80000000), ErrRecordCorrupt},
		"body length too large":       {put32(84, 1000), ErrRecordCorrupt},
		"body length bad, cut there":  {func(b []byte) []byte { return put32(84, 1000)(b)[:88] }, ErrRecordCorrupt},
		"IPv6 flag without room":      {func(b []byte) []byte { return put32(36, 0x30)(put32(0, 92)(b)) }, ErrRecordCorrupt},
		"topic length negative":       {func(b []byte) []byte { b[93] = 0x80; return b }, ErrRecordCorrupt},
		"topic length too large":      {func(b []byte) []byte { b[93] = 0x7F; return b }, ErrRecordCorrupt},
		"properties length too large": {func(b []byte) []byte { b[101]++; return b }, ErrRecordCorrupt},
		"properties length too small": {func(b []byte) []byte { b[101]--; return b }, ErrRecordCorrupt},
		"a bit of the body turned":    {func(b []byte) []byte { b[88] ^= 1; return b }, ErrRecordCorrupt},
		"a bit of the CRC turned":     {put32(8, 907060871), ErrRecordCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := new(Record).Decode(c.damage(good()))
			require.ErrorIs(t, err, c.want)
		})
	}
	damaged := good()
	damaged[88] ^= 1
	size, err := new(Record).DecodeUnchecked(damaged)
	require.NoError(t, err, "the CRC is not looked at")
	require.Equal(t, len(damaged), size)
}

func TestFillerGivesItsLength(t *testing.T) {
	b := AppendBlank(nil, 1<<30)
	require.Len(t, b, BlankSize)
	size, err := new(Record).Decode(b)
	require.ErrorIs(t, err, ErrRecordBlank)
	require.Equal(t, 1<<30, size)
	_, err = new(Record).Decode(b[:7])
	require.ErrorIs(t, err, ErrRecordShort)
}

func genBytes(maxLen int) *rapid.Generator[[]byte] { return rapid.SliceOfN(rapid.Byte(), 0, maxLen) }

func genHost(t *rapid.T, label string) netip.AddrPort {
	port := rapid.Uint16().Draw(t, label+" port")
	if rapid.Bool().Draw(t, label+" v6") {
		b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label)
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)), port)
	}
	b := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, label)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), port)
}

func genRecord(t *rapid.T) Record {
	r := Record{
		QueueID: rapid.Int32().Draw(t, "queueId"), Flag: rapid.Int32().Draw(t, "flag"),
		QueueOffset: rapid.Int64().Draw(t, "queueOffset"), PhysicalOffset: rapid.Int64().Draw(t, "physicalOffset"),
		SysFlag: rapid.Int32().Draw(t, "sysFlag"), BornTimestamp: rapid.Int64().Draw(t, "born"),
		BornHost: genHost(t, "bornHost"), StoreTimestamp: rapid.Int64().Draw(t, "store"), StoreHost: genHost(t, "storeHost"),
		ReconsumeTimes: rapid.Int32().Draw(t, "reconsume"), PreparedTransactionOffset: rapid.Int64().Draw(t, "prepared"),
		Body: genBytes(300).Draw(t, "body"), Topic: genBytes(300).Draw(t, "topic"), Properties: genBytes(300).Draw(t, "properties"),
	}
	if rapid.Bool().Draw(t, "v2") {
		r.Magic = MagicV2
	}
	return r
}

func TestRecordsComeBackAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := genRecord(t)
		b := want.Append([]byte("before"))[6:]
		require.Len(t, b, want.Size())
		var got Record
		size, err := got.Decode(append(b[:len(b):len(b)], "behind"...))
		require.NoError(t, err)
		require.Equal(t, len(b), size)
		require.Equal(t, b, got.Append(nil))
		want.Magic, want.BodyCRC, want.SysFlag = got.Magic, BodyCRC(want.Body), got.SysFlag
		require.Equal(t, want.SysFlag&SysBornV6 != 0, want.BornHost.Addr().Is6())
		require.Equal(t, want.SysFlag&SysStoreV6 != 0, want.StoreHost.Addr().Is6())
		require.Equal(t, want, got)
		n := rapid.IntRange(0, len(b)-1).Draw(t, "prefix")
		_, err = got.Decode(b[:n])
		require.ErrorIs(t, err, ErrRecordShort)
	})
}

func TestMessageIDs(t *testing.T) {
	host := netip.MustParseAddrPort("127.0.0.1:43025")
	require.Equal(t, "7F0000010000A81100000000000007A2", MessageID(host, 0x7A2))
	rapid.Check(t, func(t *rapid.T) {
		host, off := genHost(t, "host"), rapid.Int64().Draw(t, "offset")
		id := MessageID(host, off)
		gotHost, gotOff, err := ParseMessageID(strings.ToLower(id))
		require.NoError(t, err)
		require.Equal(t, host, gotHost)
		require.Equal(t, off, gotOff)
	})
	for _, bad := range []string{"", "7F", strings.Repeat("0", 31), strings.Repeat("x", 32), strings.Repeat("0", 58)} {
		_, _, err := ParseMessageID(bad)
		require.ErrorIs(t, err, ErrMessageID)
	}
}

func TestTagsCodeIsJavasHashCode(t *testing.T) {
	for tag, want := range map[string]int64{
		"": 0, "TagA": 2598919, "TagB": 2598920, "a": 97,
		"polygenelubricants": math.MinInt32, // the known text whose hash is the smallest number
		"\u00e9":             233,
		"\U0001F600":         31*0xD83D + 0xDE00,
	} {
		require.Equal(t, want, TagsCode([]byte(tag)), tag)
	}
}

func TestARecordsPropertiesMayComeInTwoParts(t *testing.T) {
	whole := sampleV4()
	parts := whole
	for i := range len(whole.Properties) + 1 {
		parts.Properties, parts.MoreProperties = whole.Properties[:i], whole.Properties[i:]
		require.Equal(t, whole.Size(), parts.Size())
		require.Equal(t, whole.Append(nil), parts.Append(nil))
	}
}
