package commitlog

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// model is what a store must hold.
type model struct {
	queues map[string][]int64 // "topic/queue" → offsets of its messages
	log    []*Append          // all appended items, in order
}

func (m *model) add(a *Append) {
	m.log = append(m.log, a)
	if a.Queue != nil {
		key := fmt.Sprintf("%s/%d", a.Queue.topic, a.Queue.id)
		m.queues[key] = append(m.queues[key], a.Offset)
	}
}

func (m *model) cut(pos int64) {
	m.log = slices.DeleteFunc(m.log, func(a *Append) bool { return a.Offset >= pos })
	for key, l := range m.queues {
		m.queues[key] = slices.DeleteFunc(l, func(off int64) bool { return off >= pos })
	}
}

func (m *model) check(t require.TestingT, s *Store) {
	for key, want := range m.queues {
		topic, id, _ := strings.Cut(key, "/")
		var n int32
		fmt.Sscan(id, &n)
		q := s.Queue(topic, n)
		require.EqualValues(t, len(want), q.MaxOffset(), key)
		require.EqualValues(t, len(want), q.NextOffset(), key)
		units := make([]Unit, len(want)+1)
		got, err := q.Read(0, units)
		require.NoError(t, err)
		require.Equal(t, len(want), got)
		for i, off := range want {
			require.Equal(t, off, units[i].Offset)
		}
	}
	if len(m.log) > 0 {
		last := m.log[len(m.log)-1]
		start, end, ok := s.LastRecord()
		require.True(t, ok)
		require.Equal(t, []int64{last.Offset, last.End}, []int64{start, end})
	}
}

func TestRandomHistoriesAgreeWithTheModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := testOptions(tempDir(t))
		o.SegmentSize, o.ConsumeQueueUnits = 4096, 7
		s, err := Open(o)
		require.NoError(rt, err)
		defer func() { s.Close() }()
		m := &model{queues: make(map[string][]int64)}
		reopen := func(dir string) {
			o.RootDir = dir
			s, err = Open(o)
			require.NoError(rt, err)
		}
		settle := func() { waitDispatched(t, s) }
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) {
				var l []*Append
				for range rapid.IntRange(1, 6).Draw(rt, "items") {
					msg := message{
						topic: rapid.SampledFrom([]string{"A", "B", "C"}).Draw(rt, "topic"), queue: rapid.Int32Range(0, 1).Draw(rt, "queue"),
						body: strings.Repeat("b", rapid.IntRange(0, 1500).Draw(rt, "size")), sys: rapid.SampledFrom([]int32{0, 0, 0, 4, 8, 12}).Draw(rt, "type"),
					}
					l = append(l, item(s, msg))
					if rapid.Bool().Draw(rt, "noted") {
						noted(l[len(l)-1], msg)
					}
				}
				s.Append(l, nil)
				for _, a := range l {
					require.NoError(rt, a.Err)
					m.add(a)
				}
			},
			"save":  func(*rapid.T) { settle(); require.NoError(rt, s.keep.save()) },
			"flush": func(*rapid.T) { require.NoError(rt, s.flush.flush()) },
			"restart": func(*rapid.T) {
				require.NoError(rt, s.Close())
				requireSound(t, o)
				reopen(o.RootDir)
			},
			"kill": func(*rapid.T) {
				dir := crashCopy(t, s)
				require.NoError(rt, s.Close())
				reopen(dir)
			},
			"cut": func(rt *rapid.T) {
				if len(m.log) == 0 {
					return
				}
				pos := m.log[rapid.IntRange(max(0, len(m.log)-20), len(m.log)-1).Draw(rt, "at")].Offset
				settle()
				require.NoError(rt, s.TruncateTo(pos))
				m.cut(pos)
			},
			"role": func(*rapid.T) { require.NoError(rt, s.SetSlave(true)); require.NoError(rt, s.SetSlave(false)) },
			"":     func(*rapid.T) { settle(); m.check(rt, s) },
		})
	})
}

func TestReadersRunBesideEverything(t *testing.T) {
	s := openTest(t, testOptions(tempDir(t)))
	putMany(t, s, "T", 100)
	waitDispatched(t, s)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			units := make([]Unit, 16)
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, q := range s.Queues() {
					n, _ := q.Read(max(q.MinOffset(), q.MaxOffset()-10), units)
					for _, u := range units[:n] {
						sl, err := s.Read(u.Offset, int(u.Size))
						if err == nil {
							_ = append([]byte(nil), sl.Bytes...)
							sl.Release()
						}
					}
					_ = q.NextOffset() + q.OffsetByTime(1_700_000_000_500, true)
				}
				_, _, _ = s.LastRecord()
				s.FlushTo(s.End())
				_ = s.Cold(0, 100)
				_ = s.Err()
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for i := range 300 {
				m := message{topic: "T", queue: int32(i % 3), body: strings.Repeat("c", i)}
				s.Append([]*Append{noted(item(s, m), m)}, nil)
			}
		})
	}
	for range 5 {
		waitDispatched(t, s)
		start, _, ok := s.LastRecord()
		require.True(t, ok)
		_ = s.TruncateTo(start) // may race with appends: then it is simply a cut further back
		require.NoError(t, s.DeleteTopic("T"))
	}
	close(stop)
	wg.Wait()
	waitDispatched(t, s)
}
