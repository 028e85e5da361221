// Package commitlog is the store of a broker: an ordered log of message records in memory-mapped segments, and for every
// topic and queue a consume queue that says where in the log its messages lie. Both are written as Apache RocketMQ writes
// them, so that either broker can open a store the other one left behind.
//
// The central type is [Store]. A store has one of two writers, chosen by [Store.SetSlave]:
//
//   - a master's event loops call [Store.Append]. It takes the one append lock once for a whole read batch, gives queue
//     offset, physical offset and store time, copies the records into the mapped segment, and moves the written watermark.
//   - a slave's receiving goroutine reads bytes of the master's log straight into [Store.RawBuffer] and publishes them
//     with [Store.RawCommit].
//
// Everything else follows the written watermark ([Store.End]). Goroutines, all started by [Open] and ended by
// [Store.Close]:
//
//   - the allocator creates, allocates and maps the next segment before it is needed;
//   - the preparer keeps a window of pages behind the log's end in memory and mapped, so that appends do not fault;
//   - the dispatcher, the only writer of consume queues, walks the records below the visible end and writes their units; what an append section
//     has noted of a record it need not read;
//   - the log flusher makes segments durable and moves the flushed watermark;
//   - the queue flusher makes consume queues durable and writes the checkpoint, which only ever describes durable data; it
//     also unmaps older segments that have not been used for a while.
//
// Positions (MinOffset, End, Flushed, Dispatched), reads of log and queues, FlushTo and WakeDispatch are safe from any
// goroutine; the watermarks are lock-free. RawBuffer and RawCommit have one caller. Callbacks are named with the goroutine
// that runs them, and must not block.
//
// Bytes handed out ([Slice], [SegmentRef]) lie in a mapping and stay valid until Release. A segment is unmapped or removed
// only when nobody holds it; releasing twice is an error of the caller and panics.
//
// Lock order: save (checkpoint and manifest), dispatch, flush, append, window, queue table, open-file cache or dirty set. Those of the
// allocator and of a segment's mapping are taken last and held over nothing else. Callbacks of the dispatcher run under the dispatch lock.
package commitlog
