// Package engine is the network of the broker and the name server: a Server that serves framed connections on a few event loops,
// a Pool for work that may block, and a Client for calls to other processes. It knows frames, not what they ask for: that is
// the Handler's business.
//
// # Server
//
// A Server has its own listeners, with one accepting goroutine each, and hands every connection to one of its Loops (gnet's,
// underneath), where it stays for life. A Loop is one goroutine that does things in turns. A turn begins with one read event of
// one connection, with a batch of posted tasks, or with the begin or end of a connection. In it the handler gets every whole
// frame that arrived (OnFrame), then once OnTurn, and then each connection that got output is written once. Answers that come
// later are posted to the loop as Tasks; however many wait, they cost one wake-up and are again one turn.
//
// # Who may call what
//
// Handler methods, Task.RunOnLoop and the functions given to Server.Each run on a loop and must not block: what may (disk,
// index, other servers) goes to a Pool and comes back by Post. Conn's methods marked "loop only" are for these callbacks, on
// connections of the same loop. Loop.Post, Conn.Post, Conn.Close and all of Server, Pool and Client are safe from any goroutine.
//
// # Who owns which bytes
//
// A codec.View and all its slices belong to the engine and die when OnFrame returns. What is appended to *Conn.Out() is the
// engine's; the pointer dies with the callback. The slices given to WriteVec are the caller's again when it returns. A frame given to Conn.Post
// is the engine's from then on. The response of Client.Call is the caller's.
//
// # Bounds
//
// A connection that owes its peer MaxInFlight answers, or whose peer leaves SoftOut bytes of output standing, has new requests
// answered SYSTEM_BUSY (a remark that begins with "[OVERLOAD]"; one-way requests are dropped at MaxInFlight). At HardOut bytes
// it is closed, and also when the peer's system acknowledges no byte for StallTimeout while output waits here; a peer that is
// merely slow is kept. Bytes that are no frame close their connection as soon as they are seen: a length is checked
// before its body is waited for, and the buffer of an unfinished frame grows with what arrived, not with what was announced. A
// panic of the handler costs one connection: the one it was called for, or the one whose output it touched last. More than
// MaxConns connections, or more than there are descriptors for, are closed at once, and nothing else changes.
//
// # Goroutines
//
// A Server has one per listener, one per loop and one that posts a tick to each loop, at most once per second, for all that
// depends on time. Shutdown ends them. Posted tasks are never lost: each runs exactly once, at the latest while the loop
// ends; a task posted after that runs on a short-lived goroutine with all connections closed. A Pool has its workers, a Client one
// per connection, which dials and then reads; callers write themselves. Close ends them.
package engine
