// Package nameserver is the name server: the place where brokers say who they
// are and what topics they have, and where clients ask for it. It speaks the
// protocol of Apache RocketMQ's name server 5 (and is found good enough by
// brokers, clients and tools of 4.9).
//
// [Start] returns a [Server], which listens at once and runs until Shutdown. All
// it knows is in memory: brokers register every 30 s and at each change, so
// a name server that starts empty is complete after half a minute.
//
// The rules stand apart from the network: the unexported type routes holds the
// tables, takes the time as an argument, and does no I/O. It belongs to the
// server's only event loop. Everything that touches it, requests, closed
// connections, and the periodic look for silent brokers, runs there, so it has no
// lock. The package's one goroutine is the ticker that posts that look to
// the loop; Shutdown ends it.
//
// Start, Addr and Shutdown are safe from any goroutine.
package nameserver
