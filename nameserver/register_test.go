package nameserver

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/codec"
)

const plainBody = `{"filterServerList":["f:1"],"topicConfigSerializeWrapper":{` +
	`"dataVersion":{"counter":3,"stateVersion":0,"timestamp":7},"topicConfigTable":{` +
	`"T1":{"order":false,"perm":6,"readQueueNums":4,"topicFilterType":"SINGLE_TAG","topicName":"T1","topicSysFlag":0,"writeQueueNums":5},` +
	`"T2":{"attributes":{"a b":"x"},"perm":4,"readQueueNums":1,"topicFilterType":"SINGLE_TAG","topicName":"T2","writeQueueNums":1}}}}`

// compressedBody is plainBody in the compressed form.
func compressedBody(t testing.TB, topics ...string) []byte {
	var plain []byte
	field := func(text string) {
		plain = binary.BigEndian.AppendUint32(plain, uint32(len(text)))
		plain = append(plain, text...)
	}
	field(`{"counter":3,"stateVersion":0,"timestamp":7}`)
	plain = binary.BigEndian.AppendUint32(plain, uint32(len(topics)))
	for _, topic := range topics {
		field(topic)
	}
	field(`["f:1"]`)
	plain = binary.BigEndian.AppendUint32(plain, 0) // no mappings
	return deflate(t, plain)
}

func deflate(t testing.TB, plain []byte) []byte {
	var b bytes.Buffer
	z := zlib.NewWriter(&b)
	_, err := z.Write(plain)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return b.Bytes()
}

func TestEveryFormOfARegistrationIsUnderstood(t *testing.T) {
	packed := compressedBody(t, "T1 4 5 6 SINGLE_TAG", `T2 1 1 4 SINGLE_TAG {"a b":"x"}`)
	wrapper := []byte(plainBody[len(`{"filterServerList":["f:1"],"topicConfigSerializeWrapper":`) : len(plainBody)-1])
	for name, test := range map[string]struct {
		body       []byte
		version    int32
		compressed bool
		filters    []string
	}{
		"plain":                         {[]byte(plainBody), 513, false, []string{"f:1"}},
		"compressed":                    {packed, 407, true, []string{"f:1"}},
		"compressed, header denies it":  {packed, 513, false, []string{"f:1"}},
		"topics alone, before V3_0_11":  {wrapper, 36, false, nil},
		"the first version with filter": {[]byte(plainBody), 37, false, []string{"f:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := decodeRegisterBody(test.body, test.version, test.compressed)
			require.NoError(t, err)
			require.Equal(t, codec.DataVersion{Timestamp: 7, Counter: 3}, b.TopicConfigSerializeWrapper.DataVersion)
			require.Equal(t, test.filters, b.FilterServerList)
			topics := b.TopicConfigSerializeWrapper.TopicConfigTable
			require.Len(t, topics, 2)
			require.Equal(t, int32(4), topics["T1"].ReadQueueNums)
			require.Equal(t, int32(5), topics["T1"].WriteQueueNums)
			require.Equal(t, int32(6), topics["T1"].Perm)
			require.Equal(t, map[string]string{"a b": "x"}, topics["T2"].Attributes)
		})
	}
}

func TestAnAbsentBodyIsAnEmptyTable(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		b, err := decodeRegisterBody(nil, 513, compressed)
		require.NoError(t, err)
		require.Empty(t, b.TopicConfigSerializeWrapper.TopicConfigTable)
	}
}

func TestADamagedRegistrationIsRefused(t *testing.T) {
	packed := compressedBody(t, "T1 4 5 6 SINGLE_TAG")
	for name, body := range map[string][]byte{
		"not JSON":                  []byte("hello"),
		"cut":                       []byte(plainBody[:len(plainBody)-9]),
		"compressed, cut":           packed[:len(packed)-8],
		"compressed, bit flipped":   append(append([]byte{}, packed[:20]...), append([]byte{packed[20] ^ 0x40}, packed[21:]...)...),
		"topic without its words":   compressedBody(t, "T1 4 5"),
		"topic with a bad number":   compressedBody(t, "T1 4 five 6 SINGLE_TAG"),
		"topic with bad attributes": compressedBody(t, "T1 4 5 6 SINGLE_TAG {oops"),
		"lengths beyond the end":    deflate(t, []byte{0, 0, 0, 200, '{', '}'}),
		"negative length":           deflate(t, []byte{0xff, 0xff, 0xff, 0xff}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeRegisterBody(body, 513, false)
			require.Error(t, err)
		})
	}
}

func TestACompressedRegistrationMayNotUnfoldWithoutEnd(t *testing.T) {
	packed := compressedBody(t, "T1 4 5 6 SINGLE_TAG "+strings.Repeat(" ", 1<<16))
	_, err := decodeCompressed(packed, 1<<20)
	require.NoError(t, err)
	_, err = decodeCompressed(packed, 1<<16)
	require.ErrorContains(t, err, "more than 65536 bytes")
}

func TestTheChecksumIsHeldAgainstTheBody(t *testing.T) {
	body := []byte(plainBody)
	sum := crc32.ChecksumIEEE(body) & 0x7FFFFFFF
	require.NoError(t, checkBody(body, sum))
	require.NoError(t, checkBody(body, 0), "no checksum was sent")
	require.ErrorIs(t, checkBody(body, sum^1), errBodyChecksum)
}

func FuzzDecodeRegisterBody(f *testing.F) {
	f.Add([]byte(plainBody), int32(513), false)
	f.Add([]byte(plainBody), int32(36), false)
	f.Add(compressedBody(f, "T1 4 5 6 SINGLE_TAG", `T2 1 1 4 SINGLE_TAG {"a":"x"}`), int32(513), true)
	f.Add(compressedBody(f), int32(513), false)
	f.Fuzz(func(t *testing.T, body []byte, version int32, compressed bool) {
		_, _ = decodeRegisterBody(body, version, compressed)
	})
}

func FuzzParseCompressed(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x02{}\x00\x00\x00\x01\x00\x00\x00\x13T1 4 5 6 SINGLE_TAG\x00\x00\x00\x02[]"))
	f.Fuzz(func(t *testing.T, plain []byte) {
		var b codec.RegisterBrokerBody
		_ = parseCompressed(plain, &b)
	})
}
