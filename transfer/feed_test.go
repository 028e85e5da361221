package transfer

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/commitlog"
)

// levelSlaves connects scripted slaves that hold all there is, and waits until appenders send to them themselves.
func levelSlaves(t testing.TB, m *Master, n int) map[*session]*scripted {
	t.Helper()
	known := map[*session]*scripted{}
	for i := range n {
		c := connect(t, m)
		c.report(m.store.End())
		waitFor(t, "one more session", func() bool { return len(*m.sessions.Load()) == i+1 })
		for _, s := range *m.sessions.Load() {
			if known[s] == nil {
				known[s] = c
				waitFor(t, "a level slave", s.isLevel)
			}
		}
	}
	return known
}

// awaitSent waits for the first session that was promised all of the log: who appended it may have left that to a report's turn.
func awaitSent(t testing.TB, m *Master) *session {
	t.Helper()
	waitFor(t, "a slave that is sent it", func() bool { return len(sentNow(m)) > 0 })
	return sentNow(m)[0]
}

// sentNow are the sessions that were promised all of the log.
func sentNow(m *Master) (out []*session) {
	for _, s := range *m.sessions.Load() {
		if s.promised.Load() == m.store.End() {
			out = append(out, s)
		}
	}
	return out
}

func acknowledge(t testing.TB, m *Master, s *session, c *scripted) {
	t.Helper()
	c.report(m.store.End())
	waitFor(t, "the report", func() bool { return s.acked.Load() == m.store.End() })
}

func TestWhatIsAppendedGoesAtOnceToAsManySlavesAsWritesWaitFor(t *testing.T) {
	for _, row := range []struct{ replicas, slaves, each int }{
		{replicas: 2, slaves: 1, each: 1}, {replicas: 2, slaves: 4, each: 1}, {replicas: 3, slaves: 4, each: 2},
		{replicas: 3, slaves: 2, each: 2}, {replicas: 5, slaves: 3, each: 3}, {replicas: 1, slaves: 3, each: 1},
	} {
		store := masterStore(t)
		put(t, store, 10)
		o := quiet()
		o.Sync, o.InSyncReplicas, o.FeedPace, o.FeedSlack = true, row.replicas, time.Hour, time.Hour
		m := startMaster(t, o, store)
		slaves := levelSlaves(t, m, row.slaves)
		for range 12 {
			turn(t, m, 3, 100)
			waitFor(t, "slaves that are sent it", func() bool { return len(sentNow(m)) >= row.each }) // the last report's turn may do it
			at := sentNow(m)
			require.Len(t, at, row.each, "%+v", row)
			for _, s := range at {
				acknowledge(t, m, s, slaves[s])
			}
		}
	}
}

func TestASlaveThatHadNoTurnGetsAllItLacksInOneFrame(t *testing.T) {
	store := masterStore(t)
	put(t, store, 10)
	o := quiet()
	o.Sync, o.FeedPace, o.FeedSlack = true, time.Hour, time.Hour
	m := startMaster(t, o, store)
	start := store.End()
	slaves := levelSlaves(t, m, 2)
	turn(t, m, 1, 100)
	first := awaitSent(t, m)
	turn(t, m, 1, 100) // the first one has not reported, but may be sent another frame; the other one lacks more
	second := awaitSent(t, m)
	require.NotSame(t, first, second)
	offset, body, err := slaves[second].frame()
	require.NoError(t, err)
	require.Equal(t, start, offset)
	require.Len(t, body, int(store.End()-start))
}

func TestSlavesThatHadNoTurnGetTheirBytesSoon(t *testing.T) {
	store := masterStore(t)
	put(t, store, 10)
	start := store.End()
	o := quiet()
	o.Sync, o.FeedPace, o.InFlight = true, 100*time.Millisecond, 100
	m := startMaster(t, o, store)
	slaves := levelSlaves(t, m, 3)
	for range 5 {
		turn(t, m, 1, 100)
	}
	for s, c := range slaves {
		waitFor(t, "all that was appended", func() bool { return s.promised.Load() == store.End() })
		c.until(start, store.End()) // nobody ever reported
	}
	waitFor(t, "a feeder that sleeps", m.content.Load)
}

func TestASlaveThatHangsIsPassedOver(t *testing.T) {
	store := masterStore(t)
	put(t, store, 10)
	o := quiet()
	o.Sync, o.FeedPace, o.InFlight = true, 300*time.Millisecond, 100
	m := startMaster(t, o, store)
	slaves := levelSlaves(t, m, 2)
	a := send(t, m, 100)
	hanging := awaitSent(t, m)
	var other *session
	for s := range slaves {
		if s != hanging {
			other = s
		}
	}
	waitFor(t, "the other slave's turn", func() bool { return other.promised.Load() == store.End() })
	acknowledge(t, m, other, slaves[other])
	waitFor(t, "the answer", a.done)
	require.EqualValues(t, codec.Success, a.code.Load())
	waitFor(t, "a delay that shows", func() bool {
		return hanging.pulse.delay(m.ring.now()) > quick(*m.sessions.Load(), 1, m.ring.now(), m.o.FeedSlack)
	})
	turn(t, m, 1, 100) // after a long time, to both
	for range 10 {
		a := send(t, m, 100)
		waitFor(t, "the other slave's turn", func() bool { return other.promised.Load() == store.End() })
		require.Less(t, hanging.promised.Load(), store.End(), "it is not asked before")
		acknowledge(t, m, other, slaves[other])
		waitFor(t, "the answer", a.done)
	}
}

func TestQuickSlavesAreThoseNearTheQuickest(t *testing.T) {
	const us = int64(time.Microsecond)
	of := func(delays ...int64) (out []*session) {
		for _, d := range delays {
			s := &session{}
			s.follows.Store(d >= 0)
			s.pulse.took.Store(max(d, 0))
			out = append(out, s)
		}
		return out
	}
	for _, row := range []struct {
		delays []int64
		need   int
		limit  int64
	}{
		{[]int64{0, 0}, 1, math.MaxInt64}, // nothing is known yet
		{[]int64{100 * us}, 1, 900 * us},
		{[]int64{0, 100 * us, 10_000 * us}, 1, 900 * us},
		{[]int64{10_000 * us, 9_000 * us}, 1, 36_500 * us},
		{[]int64{-1, 100 * us}, 1, 900 * us},                      // one that does not follow yet says nothing
		{[]int64{1000 * us, 100 * us, 50_000 * us}, 2, 4500 * us}, // a write waits for the second one anyway
		{[]int64{100 * us, 100 * us, 1000 * us}, 2, 900 * us},
		{[]int64{100 * us, 0, 0}, 2, math.MaxInt64},
	} {
		require.Equal(t, row.limit, quick(of(row.delays...), row.need, 0, 500*time.Microsecond), "%v", row.delays)
	}
}

func TestWhatIsAppendedRarelyGoesToAllAtOnce(t *testing.T) {
	store := masterStore(t)
	put(t, store, 10)
	o := quiet()
	o.Sync, o.FeedPace = true, time.Microsecond
	m := startMaster(t, o, store)
	slaves := levelSlaves(t, m, 3)
	for range 5 {
		calls := map[*session]int64{}
		for s := range slaves {
			calls[s] = s.sends.Load()
		}
		turn(t, m, 1, 100)
		waitFor(t, "all slaves' turn", func() bool { return len(sentNow(m)) == 3 })
		for s, c := range slaves {
			require.EqualValues(t, 1, s.sends.Load()-calls[s])
			acknowledge(t, m, s, c)
		}
	}
}

// TestWhatOnlyASlaveThatDiedWasSentGoesToAnother at once: with that slave gone there may be nobody left who takes turns.
func TestWhatOnlyASlaveThatDiedWasSentGoesToAnother(t *testing.T) {
	for _, n := range []int{2, 3} {
		store := masterStore(t)
		put(t, store, 10)
		o := quiet()
		o.Sync, o.FeedPace, o.FeedSlack = true, time.Hour, time.Hour
		m := startMaster(t, o, store)
		slaves := levelSlaves(t, m, n)
		a := send(t, m, 100)
		first := awaitSent(t, m)
		require.NoError(t, slaves[first].conn.Close())
		delete(slaves, first)
		waitFor(t, "the end of its session", func() bool { return len(*m.sessions.Load()) == n-1 })
		next := awaitSent(t, m)
		acknowledge(t, m, next, slaves[next])
		waitFor(t, "the answer", a.done)
		require.EqualValues(t, codec.Success, a.code.Load())
	}
}

func TestADelayIsThatOfTheFrameThatIsTimed(t *testing.T) {
	var p pulse
	require.Zero(t, p.delay(5))
	p.begin(100, 10)
	p.begin(200, 20) // one is timed already
	require.EqualValues(t, 5, p.delay(15), "it grows while no report comes")
	p.reported(99, 30)
	require.EqualValues(t, 30, p.delay(40))
	p.reported(150, 50)
	require.EqualValues(t, 40, p.delay(1000))
	p.begin(300, 1000)
	p.reported(300, 1080)
	require.EqualValues(t, (3*40+80)/4, p.delay(5000), "smoothed")
}

func TestManyWritersAndSlavesLoseNothingByTakingTurns(t *testing.T) {
	store := masterStore(t)
	put(t, store, 10)
	o := masterOptions()
	o.Sync, o.InSyncReplicas = true, 3
	m := startMaster(t, o, store)
	var slaves []*commitlog.Store
	for _, id := range []string{"a", "b", "c", "d"} {
		slaves = append(slaves, slaveStore(t))
		startSlave(t, slaveOptions(peerOf(m, id)), slaves[len(slaves)-1])
	}
	waitFor(t, "usable slaves", func() bool { return m.Status().Usable == 4 })
	var writers sync.WaitGroup
	for range 3 {
		writers.Go(func() {
			for i := range 200 {
				a := send(t, m, 50+i)
				if i%7 == 0 { // else the next one goes out before the answer
					waitFor(t, "the answer", a.done)
				}
			}
		})
	}
	writers.Wait()
	waitFor(t, "all answers", func() bool { return m.ring.Waiting() == 0 })
	for _, s := range slaves {
		waitFor(t, "all of the log", func() bool { return s.End() == store.End() })
		requireSameLog(t, store, s)
	}
}
