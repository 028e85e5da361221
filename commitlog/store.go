package commitlog

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Store is one broker's log and consume queues. See the package comment for who may call what.
type Store struct {
	opt      Options
	fs       FS
	log      *zap.Logger
	root     string
	logDir   string
	queueDir string
	lock     io.Closer

	segs   segmentTable
	queues *queueTable
	files  *fileCache
	dirty  *dirtySet

	mu        sync.Mutex // the append lock
	active    *segment   // holds the log's end; nil while the log has no segment
	activeMem []byte     // its writable mapping; nil if it has none yet
	end       int64
	storeTime int64      // of the last record, ms
	notes     notes      // of what was appended, for the dispatcher
	times     timeCounts // of append sections
	born      time.Time  // what they are measured from

	written, flushed, dispatched atomic.Int64
	slave, closed                atomic.Bool
	broken                       atomic.Pointer[error] // a cut failed half-way

	alloc    *allocator
	window   *window
	dispatch *dispatcher
	flush    *flusher
	keep     *keeper
	saveMu   sync.Mutex // of checkpoint and manifest; before all other locks

	visibleTo    atomic.Pointer[func() int64]
	awaited      atomic.Pointer[func() bool]
	onFlushed    atomic.Pointer[func(int64)]
	onWritten    atomic.Pointer[func(int64)]
	onDispatched atomic.Pointer[func(*Queue, int64, int64)]
	onRound      atomic.Pointer[func()]

	report    RecoveryReport // being made
	recovered RecoveryReport // as Open left it
}

// Open locks the store directory, makes it if absent, brings log and consume queues into agreement, and starts the store's
// goroutines. Errors: ErrLocked, ErrSegmentSize, ErrSegmentMissing, ErrQueueFileSize, ErrLogMissing, ErrDamaged, and those of
// the file system. A store that cannot be opened is left as it was, as far as the error allows.
func Open(o Options) (*Store, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	s := newStore(o)
	for _, dir := range []string{s.root, s.logDir, s.queueDir} {
		if err := s.fs.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make store directory: %w", err)
		}
	}
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	if err := s.recover(); err != nil {
		s.abandon()
		return nil, fmt.Errorf("open store %s: %w", s.root, err)
	}
	s.start()
	return s, nil
}

func newStore(o Options) *Store {
	s := &Store{
		born: time.Now(), opt: o, fs: o.FS, log: o.Logger,
		root: o.RootDir, logDir: o.CommitLogDir, queueDir: filepath.Join(o.RootDir, "consumequeue"),
		queues: newQueueTable(), files: newFileCache(o.FS, openQueueFiles), dirty: newDirtySet(),
	}
	s.segs.size = o.SegmentSize
	s.notes.ring = make([]note, noteRing)
	s.slave.Store(o.Slave)
	s.window, s.dispatch, s.flush, s.keep = newWindow(s), newDispatcher(s), newFlusher(s), newKeeper(s)
	return s
}

func (s *Store) start() {
	s.alloc = newAllocator(s.fs, s.logDir, s.opt.SegmentSize, s.log, s.window.call)
	switch {
	case s.active != nil:
		s.alloc.prepare(s.active.end())
	case !s.slave.Load():
		s.alloc.prepare(0)
	}
	s.resetWindow()
	go s.window.run()
	go s.dispatch.run()
	go s.flush.run()
	go s.keep.run()
}

// resetWindow begins preparing at the log's end. Needs quiesce, or to be alone.
func (s *Store) resetWindow() {
	if s.activeMem == nil { // not writable yet
		s.window.reset(nil, s.end)
		return
	}
	s.window.reset(s.active, s.end)
}

// Close dispatches what is left, makes everything durable, says so in the checkpoint, and frees the directory. The mark of
// an unclean stop stays if something could not be dispatched or saved; the error says what. Slices still held stay valid, but
// that of RawBuffer does not: a slave's receiver has to end first.
// Callbacks are not called any more when it returns. A second call does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed.Load() {
		s.mu.Unlock()
		return nil
	}
	s.closed.Store(true)
	s.mu.Unlock()
	for _, g := range []struct{ stop, done chan struct{} }{
		{s.window.stop, s.window.done}, {s.dispatch.stop, s.dispatch.done}, {s.flush.stop, s.flush.done}, {s.keep.stop, s.keep.done},
	} {
		close(g.stop)
		<-g.done
	}
	s.alloc.close()
	err := s.finish()
	if err == nil {
		err = s.removeAbort()
	}
	s.abandon()
	if err != nil {
		return fmt.Errorf("close store %s: %w", s.root, err)
	}
	return nil
}

// finish leaves a state that needs no recovery.
func (s *Store) finish() error {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	for more := true; more; {
		var err error
		if more, err = s.dispatch.round(s.written.Load()); err != nil {
			return err
		}
	}
	if err := s.flush.flush(); err != nil {
		return err
	}
	if err := s.dropHalf(); err != nil {
		return err
	}
	return s.keep.save()
}

// dropHalf cuts the unfinished record off a slave's log. On a master, and in front of a corrupt record, what is left over is an
// error.
func (s *Store) dropHalf() error {
	left := s.written.Load() - s.dispatched.Load()
	if left == 0 {
		return nil
	}
	if !s.slave.Load() || s.dispatch.fault.Load() != nil {
		return fmt.Errorf("%d bytes are not dispatched: %w", left, errors.Join(s.Err(), ErrCorrupt))
	}
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	s.quiesce()
	defer s.resume()
	return s.truncate(s.dispatch.pos, s.dispatch.last)
}

// abandon frees what the store holds, without a word to disk.
func (s *Store) abandon() {
	s.closed.Store(true)
	for _, g := range s.segs.all() {
		g.unpin()
	}
	s.segs.set(nil)
	s.files.close()
	if s.lock != nil {
		s.lock.Close()
	}
}

// quiesce stops appends, dispatch and flushes until resume. It is the order in which these locks are taken. What was noted for the
// dispatcher counts no more.
func (s *Store) quiesce() {
	s.dispatch.mu.Lock()
	s.flush.mu.Lock()
	s.mu.Lock()
	s.notes.drop()
}

func (s *Store) resume() {
	s.mu.Unlock()
	s.flush.mu.Unlock()
	s.dispatch.mu.Unlock()
}

// setPositions says that the log ends at end, with everything durable and dispatched. Needs quiesce.
func (s *Store) setPositions(end int64, last lastRecord) {
	s.end, s.storeTime = end, max(s.storeTime, last.storeTime)
	s.dispatch.reset(end, last)
	s.written.Store(end)
	s.flushed.Store(end)
	s.dispatched.Store(end)
}

// reset needs d.mu.
func (d *dispatcher) reset(pos int64, last lastRecord) {
	for _, q := range d.touched {
		q.pending = q.pending[:0]
	}
	d.touched, d.pos, d.last = d.touched[:0], pos, last
	d.fault.Store(nil)
}

// MinOffset is the position of the first byte held.
func (s *Store) MinOffset() int64 {
	if l := s.segs.all(); len(l) > 0 {
		return l[0].base
	}
	return 0
}

// End is the position after the last byte written.
func (s *Store) End() int64 { return s.written.Load() }

// Flushed is the position below which everything survives a power failure.
func (s *Store) Flushed() int64 { return s.flushed.Load() }

// Dispatched is the position below which every message is in its consume queue.
func (s *Store) Dispatched() int64 { return s.dispatched.Load() }

// SegmentSize is the length of a segment in bytes.
func (s *Store) SegmentSize() int64 { return s.opt.SegmentSize }

// Slave tells the role.
func (s *Store) Slave() bool { return s.slave.Load() }

// Recovery tells what Open found and did.
func (s *Store) Recovery() RecoveryReport { return s.recovered }

// RecoveryReport tells what opening a store found and did.
type RecoveryReport struct {
	Clean         bool     // the last user stopped cleanly
	Start, End    int64    // the log was read from Start and ends at End
	CutBytes      int64    // bytes of an unfinished tail that were cut off
	Records       int64    // records read
	RemovedFiles  []string // empty or cut-off segments
	RebuiltQueues int      // consume queues whose files were damaged
	Reason        string   // why the log was read from its oldest segment, if it was
	Took          time.Duration
}
