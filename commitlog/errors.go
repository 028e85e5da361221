package commitlog

import "errors"

// Errors of opening a store.
var (
	// ErrLocked means that another process (tandem or Apache RocketMQ) holds the store directory.
	ErrLocked = errors.New("store is locked by another process")
	// ErrSegmentSize means that a segment's length is not the configured mappedFileSizeCommitLog.
	ErrSegmentSize = errors.New("commit log segment has the wrong length")
	// ErrQueueFileSize means that the consume queue files were made with another mappedFileSizeConsumeQueue.
	ErrQueueFileSize = errors.New("consume queue file has the wrong length")
	// ErrSegmentMissing means that a segment between the first and the last one is absent.
	ErrSegmentMissing = errors.New("commit log segment is missing")
	// ErrLogMissing means that the consume queues hold messages, but there is no log at all.
	ErrLogMissing = errors.New("commit log is missing")
	// ErrDamaged means that the log holds a bad record with good ones in later segments: cutting there would lose them.
	ErrDamaged = errors.New("commit log is damaged in the middle")
)

// Errors of writing.
var (
	// ErrDiskFull means that there is no space for the next segment. Nothing was stored; later appends try again.
	ErrDiskFull = errors.New("disk is full")
	// ErrNoSegment means that the next segment could not be made for a reason other than space.
	ErrNoSegment = errors.New("next segment cannot be created")
	// ErrTooLarge means that the record, or the batch, does not fit into one segment.
	ErrTooLarge = errors.New("record is larger than a segment")
	// ErrBadBatch means that an item's bytes are not Count whole records.
	ErrBadBatch = errors.New("item is not the stated number of whole records")
	// ErrNotWritable means that the store's role does not allow this kind of write.
	ErrNotWritable = errors.New("store is not writable in this role")
	// ErrClosed means that the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrOffsetMismatch means that replicated bytes do not continue the log.
	ErrOffsetMismatch = errors.New("offset does not continue the log")
	// ErrFlushFailed means that the operating system reported a failed write-back; durability is no longer known.
	ErrFlushFailed = errors.New("flush to disk failed")
)

// Errors of reading.
var (
	// ErrOutOfRange means that the offset lies outside the log.
	ErrOutOfRange = errors.New("offset is outside the log")
	// ErrNoRecord means that no whole, valid record starts at the offset.
	ErrNoRecord = errors.New("no record starts at this offset")
	// ErrCorrupt means that bytes of the log are not a valid record.
	ErrCorrupt = errors.New("record is corrupt")
)

// errNoZeroRange means that the file system cannot clear a range without writing it.
var errNoZeroRange = errors.New("the file system cannot clear a range")
