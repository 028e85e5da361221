package codec

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// requireNoAllocs runs f warm and demands that it allocates nothing.
func requireNoAllocs(t *testing.T, name string, f func()) {
	t.Helper()
	f()
	require.Zero(t, testing.AllocsPerRun(100, f), name)
}

func TestHotPathsAllocateNothing(t *testing.T) {
	send := sendFrames(t)
	pull := pullFrames(t)
	var v View
	var sh SendHeader
	var ph PullHeader
	for s, frame := range send {
		requireNoAllocs(t, "send "+s, func() { _ = v.Parse(frame); _ = sh.Decode(&v) })
		require.NotEmpty(t, sh.Properties)
	}
	for s, frame := range pull {
		requireNoAllocs(t, "pull "+s, func() { _ = v.Parse(frame); _ = ph.Decode(&v) })
		require.NotEmpty(t, ph.Topic)
	}
	for _, form := range []Serialize{JSON, Binary} {
		frames := producersFrames(form)
		requireNoAllocs(t, "a producer's sends", func() {
			for _, frame := range frames {
				_ = v.Parse(frame)
				_ = sh.Decode(&v)
			}
		})
	}
	_ = v.Parse(send["JSON"])
	requireNoAllocs(t, "ExtValue", func() { _, _ = v.ExtValue("b") })

	buf := make([]byte, 0, 4096)
	sr := SendResponse{
		StoreHost: netip.MustParseAddrPort("[::1]:10911"), PhysicalOffset: 1 << 50, QueueOffset: 1 << 40,
		TransactionID: []byte("0000000000000000000000000000000107DA30946E09931B0A30000F"), Remark: "ü\x01",
	}
	batch := sr
	quick := sr
	quick.Remark = ""
	answers := NewStoredAnswers(sr.StoreHost)
	batch.BatchOffsets = []int64{1, 2, 3}
	pr := PullResponse{MaxOffset: 1 << 60, Remark: "FOUND"}
	for _, s := range []Serialize{JSON, Binary} {
		requireNoAllocs(t, "send response", func() { AppendSendResponse(buf, s, 1, Success, &sr) })
		requireNoAllocs(t, "stored answer", func() { answers.Append(buf, s, 1, Success, &quick) })
		requireNoAllocs(t, "batch response", func() { AppendSendResponse(buf, s, 1, Success, &batch) })
		requireNoAllocs(t, "pull response", func() { AppendPullResponse(buf, s, 1, Success, &pr, 100) })
		requireNoAllocs(t, "response", func() { AppendResponse(buf, s, 1, SystemBusy, "full") })
		requireNoAllocs(t, "offset response", func() { AppendOffsetResponse(buf, s, 1, Success, "offset", 1<<60, "") })
	}

	record := sampleV6()
	raw := record.Append(nil)
	var r Record
	requireNoAllocs(t, "Record.Append", func() { record.Append(buf) })
	requireNoAllocs(t, "Record.Decode", func() { _, _ = r.Decode(raw) })
	requireNoAllocs(t, "Record.Decode of an empty place", func() { _, _ = r.Decode(buf[:64]) })
	requireNoAllocs(t, "PatchRecord", func() { PatchRecord(raw, 1, 2, 3) })
	requireNoAllocs(t, "Property", func() { _, _ = Property(record.Properties, PropTags) })
	requireNoAllocs(t, "EachProperty", func() { EachProperty(record.Properties, func(_, _ []byte) bool { return true }) })
	requireNoAllocs(t, "AppendProperty", func() { AppendProperty(buf, PropKeys, "x") })
	requireNoAllocs(t, "TagsCode", func() { TagsCode(record.Topic) })
	rows := AppendBatchRow(nil, BatchRow{Body: raw})
	requireNoAllocs(t, "NextBatchRow", func() { _, _, _ = NextBatchRow(rows) })
}

// sendFrames is one captured send in both header forms.
func sendFrames(t testing.TB) map[string][]byte {
	return inBothForms(t, "client-5.5.0/310-send-v2.req")
}

func pullFrames(t testing.TB) map[string][]byte { return inBothForms(t, "client-5.5.0/011-pull-2.req") }

func inBothForms(t testing.TB, name string) map[string][]byte {
	t.Helper()
	frame := capturedFrames(t)[name]
	c, err := DecodeFrame(frame)
	require.NoError(t, err)
	c.Serialize = Binary
	return map[string][]byte{"JSON": frame, "ROCKETMQ": AppendFrame(nil, &c)}
}

// producersFrames are sends as one producer sends them: they differ in queue, time, key and opaque.
func producersFrames(form Serialize) (frames [][]byte) {
	for i := range 64 {
		props := AppendProperty(nil, PropUniqKey, "7F00000126C47C53A9EB9A4C"+strconv.FormatInt(int64(0x10000000+i*77777), 16))
		c := NewRequest(ReqSendMessageV2, map[string]string{
			"a": "PG1", "b": "TopicBench", "c": "TBW102", "d": "4", "e": strconv.Itoa(i % 4), "f": "0", "g": strconv.Itoa(1795959222777 + i*13), "h": "0",
			"i": string(AppendProperty(props, PropWait, "true")), "j": "0", "k": "false", "m": "false",
		}, make([]byte, 128))
		c.Opaque, c.Serialize = 123456+int32(i)*3, form
		frames = append(frames, AppendFrame(nil, c))
	}
	return frames
}

func BenchmarkParseAndDecodeSend(b *testing.B) {
	for name, form := range map[string]Serialize{"JSON": JSON, "ROCKETMQ": Binary} {
		b.Run(name, func(b *testing.B) {
			frames := producersFrames(form)
			var v View
			var h SendHeader
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if v.Parse(frames[i%len(frames)]) != nil || h.Decode(&v) != nil {
					b.Fatal("does not decode")
				}
			}
		})
	}
}

func BenchmarkParseAndDecodePull(b *testing.B) {
	for form, frame := range pullFrames(b) {
		b.Run(form, func(b *testing.B) {
			var v View
			var h PullHeader
			b.ReportAllocs()
			for b.Loop() {
				if v.Parse(frame) != nil || h.Decode(&v) != nil {
					b.Fatal("captured pull does not decode")
				}
			}
		})
	}
}

func BenchmarkStoredAnswer(b *testing.B) {
	answers := NewStoredAnswers(netip.MustParseAddrPort("127.0.0.1:10911"))
	r := SendResponse{PhysicalOffset: 1 << 40, QueueOffset: 1234567, TransactionID: []byte("0000000000000000000000000000000107DA30946E09931B0A30000F")}
	buf := make([]byte, 0, 1024)
	for form, s := range map[string]Serialize{"JSON": JSON, "ROCKETMQ": Binary} {
		b.Run(form, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.PhysicalOffset += 300
				r.QueueOffset++
				answers.Append(buf, s, int32(r.QueueOffset), Success, &r)
			}
		})
	}
}

func benchRecord() Record {
	r := sampleV4()
	r.Body = make([]byte, 1024)
	return r
}

func BenchmarkRecordAppend(b *testing.B) {
	r := benchRecord()
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	b.SetBytes(int64(r.Size()))
	for b.Loop() {
		r.Append(buf)
	}
}

func BenchmarkRecordDecode(b *testing.B) {
	r := benchRecord()
	raw := r.Append(nil)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := r.Decode(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTagOfProperties(b *testing.B) {
	props := []byte("KEYS\x01key0\x02UNIQ_KEY\x0100000000000000000000000000000001047430946E0993193E7F0000\x02WAIT\x01true\x02TAGS\x01TagA\x02")
	b.ReportAllocs()
	for b.Loop() {
		tag, _ := Property(props, PropTags)
		TagsCode(tag)
	}
}
