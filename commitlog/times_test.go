package commitlog

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTimesAreKnownToThreePercent(t *testing.T) {
	last := -1
	for ns := int64(0); ns < 1<<timeMaxBits; ns += 1 + ns/100 {
		slot := timeSlot(ns)
		require.GreaterOrEqual(t, slot, last)
		require.Less(t, slot, timeSlots)
		up := slotTime(slot)
		require.GreaterOrEqual(t, up, ns)
		require.LessOrEqual(t, up, ns+ns/32)
		require.Equal(t, slot, timeSlot(up))
		require.Equal(t, slot+1, timeSlot(up+1)+btoi(up+1 == 1<<timeMaxBits))
		last = slot
	}
	require.Equal(t, timeSlots-1, timeSlot(1<<62))
	require.Zero(t, timeSlot(-5))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestQuantilesOfTimesAndTheirDifference(t *testing.T) {
	s := newStore(testOptions(tempDir(t)))
	require.Zero(t, s.AppendTimes().Max())
	require.Zero(t, AppendTimes{}.Quantile(0.5))
	s.times.add(time.Second)
	early := s.AppendTimes()
	for i := range 10_000 {
		s.times.add(time.Duration(i + 1))
	}
	d := s.AppendTimes().Sub(early)
	require.EqualValues(t, 10_000, d.Count())
	require.EqualValues(t, 10_001, s.AppendTimes().Count())
	require.EqualValues(t, 10_000, s.AppendTimes().Sub(AppendTimes{}).Count()-early.Count())
	require.InEpsilon(t, 5000, d.Quantile(0.5), 0.04)
	require.InEpsilon(t, 9999, d.Quantile(0.9999), 0.04)
	require.InEpsilon(t, 10_000, d.Max(), 0.04)
	require.EqualValues(t, 1, d.Quantile(0))
	require.InEpsilon(t, time.Second, s.AppendTimes().Max(), 0.04)
}

func TestEachAppendSectionIsCountedOnce(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	l := []*Append{item(s, message{topic: "T"}), item(s, message{topic: "T"})}
	for range 7 {
		s.Append(l, nil)
	}
	require.EqualValues(t, 7, s.AppendTimes().Count())
	require.Positive(t, s.AppendTimes().Quantile(0.5))
}
