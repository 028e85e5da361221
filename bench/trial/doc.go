// Package trial has the measurements that start processes of their own: clusters of brokers, and bare parts that show what the
// machine itself costs. [Overhead] sets synchronous replication beside asynchronous and beside bare exchanges of the same bytes, and
// beside Apache RocketMQ and Redis where that is asked for. [Floor] measures the bare exchanges alone, [Catchup] an empty slave beside a
// bare transfer of the same files, and what producers notice of it while the files are cold, [Fanout] one to
// eight slaves, [Soak] round trips at a fixed rate over time, [Lag] how far an asynchronous slave is behind, and [Start] the
// time from a broker's start to its first answer. [All] runs them one after the other.
//
// The central type is [Results]: what was measured, and every [bench.Figure] with its bound. Whatever is compared is measured in
// turns of short runs within minutes, and divided run by run: ratios stay what they are when the machine's mood changes.
//
// A trial is one goroutine's work; it starts others only while it loads and watches brokers, and has stopped them and all processes
// when it returns, also after an error or when its context ends.
package trial
