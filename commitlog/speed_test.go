package commitlog

import (
	"strings"
	"testing"
)

func bigOptions(t testing.TB) Options {
	o := quiet(testOptions(tempDir(t)))
	o.SegmentSize, o.ConsumeQueueUnits = 64<<20, 300000
	return o
}

func benchItems(s *Store, n, size int) (l []*Append) {
	for i := range n {
		l = append(l, item(s, message{topic: "T", queue: int32(i % 4), body: strings.Repeat("x", size), tag: "TagA"}))
	}
	return l
}

func BenchmarkAppend(b *testing.B) {
	for name, n := range map[string]int{"1": 1, "64": 64} {
		b.Run(name, func(b *testing.B) {
			s := openTest(b, bigOptions(b))
			s.SetVisible(func() int64 { return 0 })
			l := benchItems(s, n, 128)
			b.ReportAllocs()
			for i := 0; b.Loop(); i += n {
				if s.End() > 256<<20 {
					b.StopTimer()
					s.quiesce()
					err := s.cut(0, lastRecord{})
					s.resume()
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
				s.Append(l, nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/message")
		})
	}
}

func BenchmarkDispatch(b *testing.B) {
	s := openTest(b, bigOptions(b))
	s.SetVisible(func() int64 { return 0 })
	l := benchItems(s, 64, 128)
	for range 1000 {
		s.Append(l, nil)
	}
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		s.quiesce()
		s.dispatch.reset(0, lastRecord{})
		s.dispatched.Store(0)
		for _, q := range s.Queues() {
			q.max.Store(0)
		}
		s.resume()
		b.StartTimer()
		for more := true; more; {
			more, _ = s.dispatch.round(s.End())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*64000), "ns/message")
}

func BenchmarkRead(b *testing.B) {
	s := openTest(b, bigOptions(b))
	l := benchItems(s, 64, 128)
	for range 100 {
		s.Append(l, nil)
	}
	waitDispatched(b, s)
	q := s.Queue("T", 0)
	units := make([]Unit, 32)
	b.ReportAllocs()
	for b.Loop() {
		n, _ := q.Read(100, units)
		for _, u := range units[:n] {
			sl, err := s.Read(u.Offset, int(u.Size))
			if err != nil {
				b.Fatal(err)
			}
			sl.Release()
		}
	}
}
