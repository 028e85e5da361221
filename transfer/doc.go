// Package transfer replicates a commit log from a master to its slaves over RocketMQ's HA protocol, and holds the answers that
// wait for it. Its decisions are in the package rules, which does no I/O; here are sockets, files and goroutines.
//
// There are three central types. [Master] listens on the HA port, sends each slave the log from where it says it ends, and
// knows from its reports what it holds. [Slave] finds its master, proves that both logs have one history, and writes what
// comes straight into its mapped segments. [Ring] keeps the tickets of sends that must not be answered before disk or slaves
// have them.
//
// # One message in a sync mode
//
// Before a read batch is stored, [Master.Admit] says whether waiting makes sense at all, and [Ring.Reserve] takes room for its
// tickets: what finds none is turned away and not stored. Inside the append's critical section [Ring.Put] adds a ticket per
// message, so that tickets lie in the order of the log, and before any byte can be read by a slave or a flush. After the
// section [Master.NotifyAppended] sends the bytes to slaves that are caught up, or leaves them to gather for the next report
// where frames enough are on their way already. A slave's report moves the replicated watermark; whoever moves a watermark
// calls [Ring.Advance], which tells each waiter that has been passed, once and in order. Who embeds a master must call Advance
// from the store's flush callback too, and use [Ring.Visible] as the store's visible end: consumers see a message when its
// send has been answered, and not before.
//
// # Goroutines
//
// A session's connection lives on an event loop of the host given to [Master.Serve], the clients' or one of the master's own,
// which reads the reports and ends it. A Master owns: the goroutine that accepts; for each slave a writer; the expirer, which
// sleeps until the oldest ticket's clock runs out; the housekeeper, which ends sessions of dead slaves. The sending side of a
// session belongs to whoever holds its lock: the writer, or an appender in NotifyAppended that finds it free; who finds it
// taken leaves a note, and the holder looks again. Its socket is not in Go's poller, where every report would wake a thread
// for nothing: a writer that has to wait sleeps in poll. A Slave owns one goroutine, which sleeps in a blocking read: the
// packet wakes the thread that takes it in. Close ends all of them and waits. A Ring has none: it drains on the goroutines
// that call it, one at a time, and none ever waits for another.
//
// A slave more than 16 MiB behind is served apart, on a thread that every other one goes before, while its writer waits; where that
// starves it, as ordinary work for a while. While it sends, such a thread holds the session's lock, which all others only try.
//
// All exported methods are safe from any goroutine, but for [Ring.Put] (one at a time, in order) and what is to be set before
// traffic ([Ring.Configure], [Ring.OnDrained]). Waiters are called with the drain held and must not block. Calls of a [Peer]
// come one at a time.
//
// # Locks
//
// A session's sending lock and the master's own are never held together. The master's lock covers the rules' state; it is not
// held while sending, nor while the ring drains. No lock is held while a Peer is called.
//
// # Bytes
//
// A body leaves the master by sendfile from the segment's file, or by a vectored write from its mapping; the process copies
// none of it, but in the mode that is named for it. Short ones for caught-up slaves take the mapping, one call for header and
// body; long ones, and whatever may not be in memory, the file, which the writer has the disk read ahead of time. The segment
// is pinned from the frame's header to its last byte. Nothing is queued in user space: a slow slave is fed from the log by
// offset. A slave copies small bodies, which came in one read with their headers, and reads all others to their place in the
// mapping. Its consume queues are built after the report, for all that came within a few milliseconds at once.
package transfer
