package trial

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"tandem/bench"
	"tandem/bench/part"
)

// TransferReport is how fast a file goes to another process by sendfile and from the socket into a mapped file, over one stream.
type TransferReport struct {
	Bytes int64        `json:"bytes"`
	MBps  bench.Series `json:"mb_per_s"` // 10^6 bytes
}

// WriteTable prints the report.
func (r TransferReport) WriteTable(w io.Writer) {
	t := bench.NewTable("bare transfer", "MB/s", "from … to")
	t.AppendRow(table.Row{bench.MiB(r.Bytes), fmt.Sprintf("%.0f", r.MBps.Median), fmt.Sprintf("%.0f … %.0f", r.MBps.Low, r.MBps.High)})
	fmt.Fprintln(w, t.Render())
}

// transfers makes a file and measures its transfer several times.
func (o FloorOptions) transfers(ctx context.Context) (rep TransferReport, err error) {
	source := filepath.Join(o.Dir, "transfer.source")
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	if err := writeFile(source, o.Bytes); err != nil {
		return rep, err
	}
	var values []float64
	for round := range o.Rounds {
		o.progress(round, o.Rounds, "bare transfer")
		if err := o.warm(ctx); err != nil {
			return rep, err
		}
		mbps, err := o.transferOnce(ctx, []string{source}, o.Bytes)
		if err != nil {
			return rep, err
		}
		values = append(values, mbps)
	}
	return TransferReport{Bytes: o.Bytes, MBps: bench.NewSeries(values)}, nil
}

// writeFile makes a file of so many bytes that do not compress and are in the page cache then.
func writeFile(path string, size int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i*i>>8 ^ i)
	}
	for size > 0 && err == nil {
		n := min(size, int64(len(block)))
		_, err = f.Write(block[:n])
		size -= n
	}
	return errors.Join(err, f.Close())
}

// transferOnce sends the first total bytes of the files, which are one row, to a receiver, and returns 10^6 bytes per second: from
// the first byte until the receiver has told that it has all.
func (s Setup) transferOnce(ctx context.Context, files []string, total int64) (mbps float64, err error) {
	target := filepath.Join(s.Dir, "transfer.target")
	r, err := s.startPart(ctx, "receiver", "receiver", true, "--file="+target, "--bytes="+strconv.FormatInt(total, 10))
	if err != nil {
		return 0, err
	}
	defer func() {
		if stopErr := r.Stop(); err == nil {
			err = stopErr
		}
	}()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", r.addr)
	if err != nil {
		return 0, fmt.Errorf("receiver: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	start := time.Now()
	if err := sendFiles(conn.(*net.TCPConn), files, total); err != nil {
		return 0, fmt.Errorf("bare transfer: %w", err)
	}
	var told [8]byte
	if _, err := io.ReadFull(conn, told[:]); err != nil {
		return 0, fmt.Errorf("bare transfer: %w: %s", err, r.LogTail(5))
	}
	took := time.Since(start).Seconds()
	if n := binary.BigEndian.Uint64(told[:]); n != uint64(total) {
		return 0, fmt.Errorf("bare transfer: %w: %d bytes came, %d were sent", part.ErrSize, n, total)
	}
	return float64(total) / took / 1e6, nil
}

// sendFiles sends the first total bytes of the files by sendfile.
func sendFiles(conn *net.TCPConn, files []string, total int64) error {
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		n, err := conn.ReadFrom(io.LimitReader(f, total))
		f.Close()
		if err != nil {
			return err
		}
		total -= n
	}
	if total > 0 {
		return fmt.Errorf("%w: the files are %d bytes short", part.ErrSize, total)
	}
	return nil
}

// segments are the paths of a store's commit log, in its order.
func segments(store string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(store, "commitlog", "[0-9]*"))
	slices.Sort(files)
	return files, err
}
