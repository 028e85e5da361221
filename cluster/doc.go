// Package cluster starts, watches and stops the processes of a local cluster: tandem's own, or those of Apache RocketMQ; and of Redis,
// to compare with.
// It serves the commands `up`, `demo` and `bench` and the interoperability tests. It speaks no protocol: a process is
// ready when its port takes a connection or a line stands in its log, and everything beyond that is the caller's to ask.
//
// The central type is [Process]: one child in a process group of its own, with a log file, readiness probes, and a
// channel that closes when it ends. A [Flavour] ([Tandem] or [Apache]) turns settings into the [Spec] of a process, a
// [Node] is a broker or name server that can be started again over the same files and ports, and a [Cluster] is a name
// server with masters and their slaves.
//
// Each running Process owns one goroutine, which starts the child, waits for its end and leaves with it. That goroutine
// keeps its operating-system thread, because the kernel ties "kill the child when its parent dies" to the thread that made it.
// All methods may be called from any goroutine. What was started must be stopped: Process.Stop or Kill, or Cluster.Close.
package cluster
