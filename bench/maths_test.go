package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/codec"
)

func TestASeriesHasMedianAndSpread(t *testing.T) {
	for _, c := range []struct {
		values            []float64
		median, low, high float64
	}{
		{nil, 0, 0, 0},
		{[]float64{3}, 3, 3, 3},
		{[]float64{5, 1, 3}, 3, 1, 5},
		{[]float64{4, 1, 2, 9}, 3, 1, 9},
		{[]float64{2, math.NaN(), 4, math.Inf(1)}, 3, 2, 4},
	} {
		s := NewSeries(c.values)
		require.Equal(t, []float64{c.median, c.low, c.high}, []float64{s.Median, s.Low, s.High}, "%v", c.values)
		require.Len(t, s.Values, len(c.values))
		_, err := json.Marshal(s)
		require.NoError(t, err)
	}
}

func TestASeriesKeepsItsOrder(t *testing.T) {
	values := []float64{5, 1, 3}
	require.Equal(t, values, NewSeries(values).Values)
	require.Equal(t, []float64{5, 1, 3}, values)
}

func TestRatiosAreTakenRoundByRound(t *testing.T) {
	// The machine gets slower and slower: each side's own spread is large, the ratio's is none.
	s := Ratios([]float64{95, 47.5, 19}, []float64{100, 50, 20})
	require.InDelta(t, 0.95, s.Median, 1e-9)
	require.InDelta(t, 0.95, s.Low, 1e-9)
	require.InDelta(t, 0.95, s.High, 1e-9)
	require.Zero(t, Ratios([]float64{1}, []float64{0}).Median, "no base, no ratio")
	require.Len(t, Ratios([]float64{1, 2}, []float64{1}).Values, 1)
}

func TestAMedianLiesInItsSpread(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 1, 50).Draw(t, "values")
		s := NewSeries(values)
		require.LessOrEqual(t, s.Low, s.Median)
		require.LessOrEqual(t, s.Median, s.High)
		below, above := 0, 0
		for _, v := range values {
			if v < s.Median {
				below++
			}
			if v > s.Median {
				above++
			}
		}
		require.LessOrEqual(t, below, len(values)/2)
		require.LessOrEqual(t, above, len(values)/2)
	})
}

func TestLatenciesAreMicroseconds(t *testing.T) {
	h := newHistogram()
	for i := int64(1); i <= 1000; i++ {
		record(h, i*1000) // 1 µs to 1 ms
	}
	l := latencyOf(h)
	for _, c := range []struct{ want, got float64 }{{500, l.P50}, {900, l.P90}, {990, l.P99}, {999, l.P999}, {1000, l.P9999}, {1000, l.Max}, {500.5, l.Mean}} {
		require.InEpsilon(t, c.want, c.got, 0.002)
	}
	require.Zero(t, latencyOf(newHistogram()))
}

func TestAHistogramTakesAnyDuration(t *testing.T) {
	h := newHistogram()
	for _, ns := range []int64{-5, 0, 1, int64(time.Hour), math.MaxInt64} {
		record(h, ns)
	}
	require.EqualValues(t, 5, h.TotalCount())
	require.InEpsilon(t, 6e7, latencyOf(h).Max, 0.002)
}

// Answers and losses at any times: what was sent within the window is counted exactly once.
func TestWhatWasSentInTheWindowIsCountedOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newRecorder(window{1000, 2000}, nil)
		var inside, acked, failed, inTime int64
		for range rapid.IntRange(0, 200).Draw(t, "messages") {
			sent := rapid.Int64Range(1, 3000).Draw(t, "sent")
			now := sent + rapid.Int64Range(0, 1500).Draw(t, "after")
			in := sent >= 1000 && sent < 2000
			if in {
				inside++
			}
			switch rapid.IntRange(0, 2).Draw(t, "fate") {
			case 0:
				r.success(sent, now)
				if in {
					acked++
				}
				if now >= 1000 && now < 2000 {
					inTime++
				}
				continue
			case 1:
				r.refused(&codec.View{Code: codec.FlushSlaveTimeout}, sent)
			case 2:
				r.fail(sent, ConnectionLost, "gone")
			}
			if in {
				failed++
			}
		}
		sum := newRecorder(r.window, nil)
		sum.merge(r)
		var errors int64
		for _, n := range sum.errors {
			errors += n
		}
		require.Equal(t, []int64{inside, acked, failed, inTime}, []int64{sum.sent, sum.acked, errors, sum.inTime})
		require.Equal(t, acked, sum.trips.TotalCount())
	})
}

func TestClaimsNeverExceedTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &run{SendOptions: SendOptions{Messages: rapid.Int64Range(1, 100).Draw(t, "limit")}}
		r.left.Store(r.Messages)
		total := int64(0)
		for range 60 {
			n := rapid.IntRange(1, 20).Draw(t, "wanted")
			got := r.claim(n)
			require.True(t, got >= 0 && got <= n)
			total += int64(got)
		}
		require.LessOrEqual(t, total, r.Messages)
		for r.claim(1) == 1 {
			total++
		}
		require.Equal(t, r.Messages, total)
	})
}

func TestAPatchedFrameIsTheMessageThatWasMeant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := message{
			topic: rapid.StringMatching("[A-Za-z%_-]{1,20}").Draw(t, "topic"), queue: rapid.IntRange(0, 99).Draw(t, "queue"), nums: 4,
			wait: rapid.Bool().Draw(t, "wait"), form: codec.Serialize(rapid.IntRange(0, 1).Draw(t, "form")),
			body: rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "body"),
		}
		f, err := newFrame(m)
		require.NoError(t, err)
		slot := rapid.Int32Range(0, maxDepth-1).Draw(t, "slot")
		ms := rapid.Int64Range(1_600_000_000_000, 3_000_000_000_000).Draw(t, "time")
		serial := rapid.Uint32().Draw(t, "serial")
		var born stamp
		born.set(ms)
		out := f.append([]byte("before"), slot, &born, serial)[len("before"):]
		require.Len(t, out, f.size())

		var v codec.View
		require.NoError(t, v.Parse(out))
		var h codec.SendHeader
		require.NoError(t, h.Decode(&v))
		require.Equal(t, slot, v.Opaque-opaqueBase)
		require.Equal(t, m.form, v.Serialize)
		require.Equal(t, ms, h.BornTimestamp)
		require.Equal(t, m.topic, string(h.Topic))
		require.EqualValues(t, m.queue, h.QueueID)
		require.True(t, bytes.Equal(m.body, v.Body))
		key, _ := codec.Property(h.Properties, "UNIQ_KEY")
		require.Len(t, key, 32)
		require.True(t, strings.HasPrefix(string(key), keyPrefix))
	})
}

func TestAPatchedFrameAllocatesNothing(t *testing.T) {
	f, err := newFrame(message{topic: "T", nums: 4, body: payload(128)})
	require.NoError(t, err)
	out := make([]byte, 0, f.size())
	var born stamp
	n := testing.AllocsPerRun(100, func() {
		born.set(born.ms + 1)
		out = f.append(out[:0], 7, &born, 9)
	})
	require.Zero(t, n)
}

func TestAForeignOpaqueIsNoSlot(t *testing.T) {
	for _, opaque := range []int32{0, -1, opaqueBase - 1, opaqueBase, opaqueBase + 64, math.MaxInt32} {
		l := newLink(&run{SendOptions: SendOptions{Depth: 64}}, "", 0)
		l.sent[1] = 1
		_, err := l.release(opaque)
		require.ErrorIs(t, err, errProtocol, "%d", opaque)
	}
}

func TestTablesNameWhatMatters(t *testing.T) {
	var b strings.Builder
	WriteTable(&b, SendReport{
		Label: "sync", Sent: 10, Acked: 7, Errors: map[string]int64{"SYSTEM_BUSY": 3}, FirstError: "SYSTEM_BUSY: full",
		RoundTrip: Latency{P50: 250, Max: 2_500_000}, Processes: []ProcessReport{{Name: "master", RssAnon: 3 << 20}},
	})
	for _, want := range []string{"sync", "3 SYSTEM_BUSY", "full", "250 µs", "2.50 s", "master", "3.0 MiB"} {
		require.Contains(t, b.String(), want)
	}
}
