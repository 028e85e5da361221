package commitlog

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func bigOptions(t testing.TB) Options {
	o := quiet(testOptions(tempDir(t)))
	o.SegmentSize, o.ConsumeQueueUnits = 64<<20, 300000
	return o
}

func benchItems(s *Store, n, size int) (l []*Append) {
	for i := range n {
		m := message{topic: "T", queue: int32(i % 4), body: strings.Repeat("x", size), tag: "TagA"}
		l = append(l, noted(item(s, m), m))
	}
	return l
}

// diskOptions are those of a broker with segments small enough to be crossed.
func diskOptions(b *testing.B) Options {
	return Options{RootDir: b.TempDir(), SegmentSize: 256 << 20}
}

// benchFill fills fresh stores up to fillBytes, over several segments, by calls of one, which stores some bytes and tells how many
// operations that were. It reports time and processor time, the kernel's and that of the store's goroutines included.
func benchFill(b *testing.B, o Options, unit string, one func(s *Store) func() int) {
	const fillBytes = 1 << 30
	times := hdrhistogram.New(1, int64(time.Minute), 3)
	var cpu, wall time.Duration
	operations, stored := 0, int64(0)
	for b.Loop() {
		b.StopTimer()
		require.NoError(b, os.RemoveAll(o.RootDir))
		s, err := Open(o)
		require.NoError(b, err)
		s.SetVisible(func() int64 { return 0 })
		op := one(s)
		cpuBefore, began := processorTime(b), time.Now()
		b.StartTimer()
		for last := began; s.End() < fillBytes; {
			operations += op()
			now := time.Now()
			_ = times.RecordValue(int64(now.Sub(last)))
			last = now
		}
		b.StopTimer()
		wall += time.Since(began)
		cpu += processorTime(b) - cpuBefore
		stored += s.End()
		s.SetVisible(nil)
		_ = s.Close() // what a slave was fed is no log
		b.StartTimer()
	}
	b.ReportMetric(float64(wall.Nanoseconds())/float64(operations), "ns/"+unit)
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(operations), "cpu-ns/"+unit)
	b.ReportMetric(cpu.Seconds()/(float64(stored)/(1<<30)), "cpu-s/GiB")
	b.ReportMetric(float64(times.ValueAtQuantile(99.99)), "p99.99-ns")
	b.ReportMetric(float64(times.Max()), "max-ns")
}

// processorTime is what this process has used so far.
func processorTime(b *testing.B) time.Duration {
	var r unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 64} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			benchFill(b, diskOptions(b), "message", func(s *Store) func() int {
				l := benchItems(s, n, 172) // records of 282 bytes
				return func() int { s.Append(l, nil); return n }
			})
		})
	}
}

func BenchmarkRaw(b *testing.B) {
	for _, size := range []int{32 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			o := diskOptions(b)
			o.Slave = true
			src := bytes.Repeat([]byte("bytes of a log "), size)[:size]
			benchFill(b, o, "call", func(s *Store) func() int {
				return func() int {
					dst, err := s.RawBuffer(s.End(), size)
					if err == nil {
						err = s.RawCommit(copy(dst, src))
					}
					if err != nil {
						b.Fatal(err)
					}
					return 1
				}
			})
		})
	}
}

// threadTime is what this thread has used so far; the goroutine is bound to it.
func threadTime(b *testing.B) time.Duration {
	var r unix.Rusage
	require.NoError(b, unix.Getrusage(unix.RUSAGE_THREAD, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkAppendAndDispatch is what a turn's messages cost the appending and the dispatching thread, apart: the dispatcher goes by notes, reads the log, or
// reads it with all checks, as a slave does.
func BenchmarkAppendAndDispatch(b *testing.B) {
	for _, how := range []string{"notes", "log", "slave"} {
		b.Run(how, func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			s := openTest(b, bigOptions(b))
			s.SetVisible(func() int64 { return 0 })
			const sections = 100
			var l []*Append
			var appends, dispatch time.Duration
			b.ReportAllocs()
			for b.Loop() {
				if l == nil || s.End() > 48<<20 {
					require.NoError(b, s.Reset())
					l = benchItems(s, 64, 128)
				}
				began := threadTime(b)
				for range sections {
					s.Append(l, nil)
				}
				appended := threadTime(b)
				if how != "notes" {
					s.quiesce()
					s.slave.Store(how == "slave")
					s.resume()
				}
				for more := true; more; {
					more, _ = s.dispatch.round(s.End())
				}
				appends, dispatch = appends+appended-began, dispatch+threadTime(b)-appended
				s.slave.Store(false)
			}
			messages := float64(b.N * sections * len(l))
			b.ReportMetric(float64(appends.Nanoseconds())/messages, "append-ns/message")
			b.ReportMetric(float64(dispatch.Nanoseconds())/messages, "dispatch-ns/message")
		})
	}
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
