package commitlog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tandem/codec"
)

// twins are two stores that are told the same; only one of them takes notes, in a ring so small that it is often full.
type twins struct {
	t              *rapid.T
	noting, plain  *Store
	noteds, plains []*Append // what both hold, in order
}

func openTwins(t *testing.T, rt *rapid.T) *twins {
	open := func(ring int) *Store {
		o := quiet(testOptions(tempDir(t)))
		o.SegmentSize, o.ConsumeQueueUnits = 4096, 7
		s, err := Open(o)
		require.NoError(rt, err)
		s.notes.ring = make([]note, ring)
		return s
	}
	w := &twins{t: rt, noting: open(8), plain: open(0)}
	w.each(func(s *Store) error { s.SetVisible(func() int64 { return 0 }); return nil })
	return w
}

func (w *twins) each(f func(*Store) error) {
	require.NoError(w.t, f(w.noting))
	require.NoError(w.t, f(w.plain))
}

func (w *twins) append(l []message, count int) {
	one := func(s *Store, all []*Append) []*Append {
		var items []*Append
		for _, m := range l {
			a := noted(item(s, m), m)
			for a.Count < count {
				a.Bytes = append(a.Bytes, m.encode()...)
				a.Count++
			}
			items = append(items, a)
		}
		s.Append(items, nil)
		for _, a := range items {
			require.NoError(w.t, a.Err)
		}
		return append(all, items...)
	}
	w.noteds, w.plains = one(w.noting, w.noteds), one(w.plain, w.plains)
	require.Equal(w.t, w.noting.End(), w.plain.End())
}

// dispatch goes on up to a position, in both.
func (w *twins) dispatch(limit int64) {
	w.each(func(s *Store) error {
		for more := true; more; {
			var err error
			if more, err = s.dispatch.round(limit); err != nil {
				return err
			}
		}
		return nil
	})
	require.Equal(w.t, w.plain.Dispatched(), w.noting.Dispatched())
	require.Equal(w.t, w.plain.dispatch.last, w.noting.dispatch.last)
}

func (w *twins) cut(at int) {
	pos := w.plains[at].Offset
	w.each(func(s *Store) error { return s.TruncateTo(pos) })
	w.noteds, w.plains = w.noteds[:at], w.plains[:at]
}

func drawMessage(rt *rapid.T) message {
	m := message{
		topic: rapid.SampledFrom([]string{"A", "B", "%RETRY%g", scheduleTopic}).Draw(rt, "topic"), queue: rapid.Int32Range(0, 2).Draw(rt, "queue"),
		body: strings.Repeat("b", rapid.IntRange(0, 700).Draw(rt, "size")), sys: rapid.SampledFrom([]int32{0, 0, 0, 0, 4, 8, 12}).Draw(rt, "type"),
		tag: rapid.SampledFrom([]string{"", "TagA", "Größe"}).Draw(rt, "tag"), v6: rapid.Bool().Draw(rt, "IPv6"),
	}
	if rapid.Bool().Draw(rt, "delayed") {
		m.props = codec.PropDelay + "\x01" + fmt.Sprint(rapid.IntRange(0, 20).Draw(rt, "level")) + "\x02"
	}
	return m
}

func TestQueuesAreTheSameWithAndWithoutNotes(t *testing.T) {
	used := false
	rapid.Check(t, func(rt *rapid.T) {
		w := openTwins(t, rt)
		defer func() { w.noting.Close(); w.plain.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"append": func(rt *rapid.T) { w.append(rapid.SliceOfN(rapid.Custom(drawMessage), 1, 6).Draw(rt, "messages"), 1) },
			"batch":  func(rt *rapid.T) { w.append([]message{drawMessage(rt)}, rapid.IntRange(2, 4).Draw(rt, "count")) },
			"dispatch": func(rt *rapid.T) {
				if end := w.plain.End(); end > 0 { // often in the middle of a record
					w.dispatch(rapid.Int64Range(w.plain.Dispatched(), end).Draw(rt, "limit"))
				}
			},
			"all": func(*rapid.T) { w.dispatch(w.plain.End()) },
			"cut": func(rt *rapid.T) {
				if n := len(w.plains); n > 0 {
					w.cut(rapid.IntRange(max(0, n-15), n-1).Draw(rt, "at"))
				}
			},
			"role": func(*rapid.T) {
				for _, slave := range []bool{true, false} {
					w.each(func(s *Store) error { return s.SetSlave(slave) })
				}
			},
			"delete": func(rt *rapid.T) {
				topic := rapid.SampledFrom([]string{"A", "B"}).Draw(rt, "topic")
				w.each(func(s *Store) error { return s.DeleteTopic(topic) })
			},
			"reset": func(*rapid.T) {
				w.each((*Store).Reset)
				w.noteds, w.plains = nil, nil
			},
			"": func(*rapid.T) {
				for i, a := range w.plains {
					require.Equal(rt, []int64{a.Offset, a.QueueOffset}, []int64{w.noteds[i].Offset, w.noteds[i].QueueOffset})
				}
			},
		})
		used = used || w.noting.notes.next > 0
		w.dispatch(w.plain.End())
		w.each(func(s *Store) error { s.SetVisible(nil); return s.Close() })
		require.Equal(rt, files(t, w.plain.root, "consumequeue"), files(t, w.noting.root, "consumequeue"))
		requireSound(t, w.noting.opt)
	})
	require.True(t, used, "notes were used")
}

// tagsOf are a queue's tags codes.
func tagsOf(t *testing.T, q *Queue) (codes []int64) {
	units := make([]Unit, 10)
	n, err := q.Read(0, units)
	require.NoError(t, err)
	for _, u := range units[:n] {
		codes = append(codes, u.TagsCode)
	}
	return codes
}

func TestNotesAreTakenAtTheirWordUntilSomethingStopsTheStore(t *testing.T) {
	const told = 77 // not what the record says
	s, err := Open(quiet(testOptions(tempDir(t))))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	s.SetVisible(func() int64 { return 0 })
	add := func() {
		a := item(s, message{topic: "T", tag: "TagA"})
		a.TagsKnown, a.TagsCode = true, told
		s.Append([]*Append{a}, nil)
		require.NoError(t, a.Err)
	}
	round := func() { _, err := s.dispatch.round(s.End()); require.NoError(t, err) }
	read := codec.TagsCode([]byte("TagA"))

	add()
	add()
	round()
	require.Equal(t, []int64{told, told}, tagsOf(t, s.Queue("T", 0)))
	add()
	s.quiesce()
	s.resume()
	round()
	require.Equal(t, []int64{told, told, read}, tagsOf(t, s.Queue("T", 0)))
	add()
	require.NoError(t, s.SetSlave(true))
	require.NoError(t, s.SetSlave(false))
	add()
	round()
	require.Equal(t, []int64{told, told, read, read, told}, tagsOf(t, s.Queue("T", 0)))
}

func TestANoteThatDoesNotFollowItsQueueLeavesItToTheRecord(t *testing.T) {
	s, err := Open(quiet(testOptions(tempDir(t))))
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	s.SetVisible(func() int64 { return 0 })
	astray := item(s, message{topic: "T", queue: 1})
	astray.Queue = s.Queue("T", 0) // takes number 0 there, and is not to be found there
	m := message{topic: "T", tag: "TagA"}
	s.Append([]*Append{astray, noted(item(s, m), m)}, nil)
	_, err = s.dispatch.round(s.End())
	require.NoError(t, err)
	require.EqualValues(t, 1, s.Queue("T", 0).MinOffset())
	require.EqualValues(t, 2, s.Queue("T", 0).MaxOffset())
}

func TestTooManyNotesAreLeftOutAndTheNextOnesAreUsed(t *testing.T) {
	s := openTest(t, quiet(testOptions(tempDir(t))))
	s.notes.ring = make([]note, 4)
	s.SetVisible(func() int64 { return 0 })
	m := message{topic: "T", tag: "TagA"}
	for range 3 {
		for range 10 {
			s.Append([]*Append{noted(item(s, m), m)}, nil)
		}
		before := s.notes.taken.Load()
		_, err := s.dispatch.round(s.End())
		require.NoError(t, err)
		require.EqualValues(t, 4, s.notes.taken.Load()-before)
	}
	require.EqualValues(t, 30, s.Queue("T", 0).MaxOffset())
}
