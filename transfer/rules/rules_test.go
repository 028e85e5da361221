package rules

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestNeedCountsTheMaster(t *testing.T) {
	for _, c := range []struct {
		sync     bool
		replicas int
		need     int
	}{
		{false, 0, 0}, {false, 3, 0}, {true, 0, 1}, {true, 1, 0}, {true, 2, 1}, {true, 3, 2},
	} {
		require.Equal(t, c.need, Need(c.sync, c.replicas), "%+v", c)
	}
}

func TestRuleTextNamesWhatIsInForce(t *testing.T) {
	require.Contains(t, Text(false, 0, 1), "asynchronous")
	require.Contains(t, Text(true, 0, 1), "1 slave")
	require.Contains(t, Text(true, 1, 1), "no slave")
	require.Contains(t, Text(true, 3, 1), "2 different slaves")
	require.Contains(t, Text(true, 3, 2), "minInSyncReplicas=2")
}

func TestBatchGrowsWithTheLag(t *testing.T) {
	const base, limit = 32 << 10, 1 << 20
	require.EqualValues(t, base, BatchSize(1, base, limit))
	require.EqualValues(t, base, BatchSize(2*base, base, limit))
	require.EqualValues(t, 256<<10, BatchSize(512<<10, base, limit))
	require.EqualValues(t, limit, BatchSize(1<<30, base, limit))
	require.EqualValues(t, base, BatchSize(1<<30, base, base))
}

func TestNewestStart(t *testing.T) {
	for end, start := range map[int64]int64{0: 0, 1: 0, 999: 0, 1000: 1000, 1001: 1000, 5999: 5000} {
		require.Equal(t, start, NewestStart(end, 1000), end)
	}
}

func TestHeartbeatDue(t *testing.T) {
	require.False(t, HeartbeatDue(100, 50, 149))
	require.True(t, HeartbeatDue(100, 50, 150))
}

func TestFirstReportAndWhereItLeads(t *testing.T) {
	for _, c := range []struct {
		name     string
		end      int64
		oldest   bool
		min, max int64
		report   int64
		at       Position
	}{
		{"holds something", 77, true, 0, 100, 77, Position{Next: 77, SegmentSize: 1000}},
		{"empty, newest", 0, false, 5000, 9000, 0, Position{Empty: true, Newest: true, SegmentSize: 1000}},
		{"empty, oldest", 0, true, 5000, 9000, 5000, Position{Next: 5000, Empty: true, SegmentSize: 1000}},
		{"empty, oldest is 0", 0, true, 0, 9000, 1, Position{Next: 1, Empty: true, SegmentSize: 1000}},
		{"both empty", 0, true, 0, 0, 0, Position{Empty: true, SegmentSize: 1000}},
	} {
		report, at := Begin(c.end, c.oldest, c.min, c.max, 1000)
		require.Equal(t, c.report, report, c.name)
		require.Equal(t, c.at, at, c.name)
	}
}

func TestFitFindsWhatCannotBeContinued(t *testing.T) {
	require.NoError(t, Fit(0, 5000, 9000))
	require.NoError(t, Fit(5000, 5000, 9000))
	require.NoError(t, Fit(9000, 5000, 9000))
	require.ErrorIs(t, Fit(9001, 5000, 9000), ErrAhead)
	require.ErrorIs(t, Fit(4999, 5000, 9000), ErrTooOld)
	require.ErrorIs(t, Fit(1, 0, 0), ErrAhead, "a master that was made new")
}

func TestFrameMustContinueTheLogInsideOneSegment(t *testing.T) {
	at := Position{Next: 1500, SegmentSize: 1000}
	empty := Position{Empty: true, Newest: true, SegmentSize: 1000}
	both := Position{Empty: true, SegmentSize: 1000}
	oldest := Position{Next: 1, Empty: true, SegmentSize: 1000}
	for _, c := range []struct {
		name   string
		p      Position
		offset int64
		size   int32
		err    error
	}{
		{"next", at, 1500, 500, nil},
		{"heartbeat", at, 1500, 0, nil},
		{"too high", at, 1501, 10, ErrGap},
		{"again", at, 1499, 10, ErrGap},
		{"heartbeat elsewhere", at, 2000, 0, ErrGap},
		{"crossing", at, 1500, 501, ErrCrossing},
		{"negative size", at, 1500, -1, ErrFrameSize},
		{"huge", at, 1500, LargestFrame + 1, ErrFrameSize},
		{"negative offset", at, -1, 1, ErrGap},
		{"first of the newest", empty, 4000, 10, nil},
		{"first of an empty log", empty, 0, 0, nil},
		{"first inside a segment", empty, 4001, 10, ErrStart},
		{"first negative", empty, -1000, 10, ErrStart},
		{"whole log", oldest, 1, 999, nil},
		{"whole log, crossing", oldest, 1, 1000, ErrCrossing},
		{"not what was asked", oldest, 2, 10, ErrStart},
		{"first of all", both, 0, 10, nil},
		{"newest instead of first of all", both, 4000, 10, ErrStart},
		{"newest instead of oldest", oldest, 4000, 10, ErrStart},
	} {
		err := c.p.Frame(c.offset, c.size)
		if c.err == nil {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorIs(t, err, c.err, c.name)
		}
	}
}

func TestReportOfAnUnknownSessionIsAnError(t *testing.T) {
	s := New(Config{Need: 1})
	require.ErrorIs(t, s.Report(1, 0, Log{SegmentSize: 10}, 0), ErrNoSession)
	s.Identify(1, "x")
	s.Close(1)
	_, ok := s.Session(1)
	require.False(t, ok)
}

func TestARaisedNeedTakesNothingBack(t *testing.T) {
	s := New(Config{Need: 1, MaxGap: 100, Housekeeping: 100})
	s.Open(1, 0)
	require.NoError(t, s.Report(1, 10, Log{End: 10, SegmentSize: 100}, 0))
	require.EqualValues(t, 10, s.Watermark())
	s.SetNeed(2)
	require.EqualValues(t, 10, s.Watermark())
	require.False(t, s.Admit(10, 0))
	s.SetNeed(0)
	require.EqualValues(t, Unlimited, s.Watermark())
	require.True(t, s.Admit(math.MaxInt64, 0))
}

// TestCountingAgainstAPlainTwin plays random sessions and compares with counting from scratch.
func TestCountingAgainstAPlainTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const maxGap, housekeeping = 300, 1000
		need := rapid.IntRange(1, 3).Draw(t, "need")
		s := New(Config{Need: need, MaxGap: maxGap, Housekeeping: housekeeping})
		type twin struct {
			identity     string
			acked, heard int64 // acked -1 before the first report
		}
		sessions := make(map[SessionID]*twin)
		var lastID SessionID
		var now, end, watermark int64
		watermark = -1
		// kth counts each identity once, by its best session.
		kth := func(accept func(*twin) bool) (count int, kth int64) {
			best := make(map[string]int64)
			var acked []int64
			for _, session := range sessions {
				switch {
				case session.acked < 0 || !accept(session):
				case session.identity == "":
					acked = append(acked, session.acked)
				default:
					old, ok := best[session.identity]
					if !ok || session.acked > old {
						best[session.identity] = session.acked
					}
				}
			}
			for _, a := range best {
				acked = append(acked, a)
			}
			slices.Sort(acked)
			if len(acked) < need {
				return len(acked), -1
			}
			return len(acked), acked[len(acked)-need]
		}
		pick := func(t *rapid.T) SessionID {
			return SessionID(rapid.Uint64Range(1, uint64(max(lastID, 1))).Draw(t, "session"))
		}
		t.Repeat(map[string]func(*rapid.T){
			"open": func(t *rapid.T) {
				lastID++
				s.Open(lastID, now)
				sessions[lastID] = &twin{acked: -1, heard: now}
			},
			"hello": func(t *rapid.T) {
				id, identity := pick(t), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "identity")
				s.Identify(id, identity)
				if session, ok := sessions[id]; ok {
					session.identity = identity
				}
			},
			"report": func(t *rapid.T) {
				id, offset := pick(t), rapid.Int64Range(-1, end+1).Draw(t, "offset")
				err := s.Report(id, offset, Log{End: end, SegmentSize: 1, Sent: end}, now)
				session, ok := sessions[id]
				legal := ok && offset >= 0 && offset <= end && offset >= session.acked
				if !legal {
					require.Error(t, err)
					s.Close(id)
					delete(sessions, id)
					return
				}
				if err != nil { // below the start
					s.Close(id)
					delete(sessions, id)
					return
				}
				session.acked, session.heard = offset, now
			},
			"close": func(t *rapid.T) {
				id := pick(t)
				s.Close(id)
				delete(sessions, id)
			},
			"append": func(t *rapid.T) { end += rapid.Int64Range(1, 200).Draw(t, "bytes") },
			"time":   func(t *rapid.T) { now += rapid.Int64Range(1, 600).Draw(t, "ms") },
			"": func(t *rapid.T) {
				_, mark := kth(func(*twin) bool { return true })
				watermark = max(watermark, mark)
				require.Equal(t, watermark, s.Watermark())
				alive := func(session *twin) bool { return now-session.heard <= housekeeping }
				usable, _ := kth(func(session *twin) bool { return alive(session) && end-session.acked < maxGap })
				require.Equal(t, usable, s.Usable(end, now))
				require.Equal(t, usable >= need, s.Admit(end, now))
				require.Equal(t, usable >= need, s.config.Enough(s.Floor(now), end), "the cheap way")
				var dead []SessionID
				for id, session := range sessions {
					if !alive(session) {
						dead = append(dead, id)
					}
				}
				slices.Sort(dead)
				require.Equal(t, dead, s.Dead(nil, now))
				require.Len(t, s.Sessions(), len(sessions))
				for _, session := range s.Sessions() {
					require.GreaterOrEqual(t, session.Lag(end), int64(0))
					require.GreaterOrEqual(t, session.LagMs(end, now), int64(0))
				}
			},
		})
	})
}

func FuzzReportNeverCountsALie(f *testing.F) {
	f.Add(int64(0), int64(5), int64(5), int64(100))
	f.Add(int64(-1), int64(-1), int64(0), int64(0))
	f.Add(int64(math.MinInt64), int64(math.MaxInt64), int64(1), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, first, second, sent, end int64) {
		if end < 0 || sent < 0 || sent > end {
			return
		}
		s := New(Config{Need: 1, MaxGap: 1 << 40, Housekeeping: 1000})
		s.Open(1, 0)
		for _, offset := range []int64{first, second} {
			if s.Report(1, offset, Log{End: end, SegmentSize: 1000, Sent: sent}, 0) != nil {
				s.Close(1)
			}
			if mark := s.Watermark(); mark > end || mark < -1 {
				t.Fatalf("watermark %d of a log that ends at %d", mark, end)
			}
		}
	})
}
