package rules

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const look = 200 * time.Millisecond

// looks notes the same so many times, and gives the time then.
func looks(p *Patience, now time.Time, n int, waited time.Duration, sent, grown int64) time.Time {
	for range n {
		now = now.Add(look)
		p.Look(now, look, waited, sent, grown)
	}
	return now
}

func TestAStarvedSlaveIsServedAsOrdinaryWorkForAWhile(t *testing.T) {
	var p Patience
	now := looks(&p, time.Unix(1000, 0), 9, look, 1<<20, 0)
	require.False(t, p.Exhausted(now))
	now = looks(&p, now, 1, look, 1<<20, 0)
	require.True(t, p.Exhausted(now))
	require.True(t, p.Exhausted(now.Add(ordinaryFor-1)))
	now = now.Add(ordinaryFor)
	require.False(t, p.Exhausted(now))
	require.False(t, p.Exhausted(looks(&p, now, 9, look, 1<<20, 0)), "patience is new")
}

func TestAShortHaltIsNoStarvation(t *testing.T) {
	var p Patience
	now := time.Unix(1000, 0)
	for range 20 {
		now = looks(&p, now, 9, look, 0, 0)
		now = looks(&p, now, 1, look, 10<<20, 0)
		require.False(t, p.Exhausted(now))
	}
}

func TestASlaveThatGetsLessThanTheLogGrowsIsStarved(t *testing.T) {
	var enough, little Patience
	now := looks(&enough, time.Unix(1000, 0), 50, look/2, 20<<20, 20<<20)
	require.False(t, enough.Exhausted(now))
	now = looks(&little, time.Unix(1000, 0), 10, look/2, 20<<20, 20<<20+1)
	require.True(t, little.Exhausted(now))
}

func TestASlaveThatTakesItsTimeIsNotStarved(t *testing.T) {
	var p Patience
	now := looks(&p, time.Unix(1000, 0), 100, look/4-1, 0, 1<<20)
	require.False(t, p.Exhausted(now))
	p.Look(now.Add(time.Hour), time.Hour, time.Second, 1<<20, 1<<30) // it did not read for an hour
	require.False(t, p.Exhausted(now.Add(time.Hour)))
}
