// Package part has the far sides of bare measurements: little servers and clients that run as child processes, so that what a
// broker costs can be set beside what the machine, the network and Go cost without one. They keep no store and know no topics.
//
// The central type is [Part]: Serve runs one of them until the context ends or its work is done. Each writes one line,
// "ready ADDRESS", when it can be used. [Echo] answers requests of a fixed size, if asked to after a round trip to another
// Echo of its own; [Stub] finds remoting frames with gnet, copies them to memory and answers all alike; [Receiver] takes
// one stream of bytes into a mapped file; [Sink] follows a master as a slave does, and only acknowledges.
//
// Each connection has one goroutine (Stub: gnet's loops), and all of them end before Serve returns. A part is used by one
// caller.
package part
