// Package bench is the load generator, and what all measurements have in common. [Send] loads one broker, or all masters that a
// name server knows, and reports throughput, round trips and errors; [Ping] exchanges bytes of the same sizes with a peer that is no
// broker; a [Figure] is a row of measured values with the bound that it is held to and the noise of the row itself. Send works on any
// broker that speaks RocketMQ's remoting protocol. What starts processes of its own is in bench/trial, the processes that are no
// brokers in bench/part, and the kept reports in bench/report.
//
// The central type is [SendOptions]; what comes back is a plain struct whose JSON field names are stable, and which prints
// itself as a table. Messages are made from pre-encoded frames in which only opaque, time and message key are patched, so
// that the generator costs little beside the broker on the same machine; its own cost per message is part of the report.
//
// One goroutine moves the bytes of all connections, by one read for each burst of answers and one write for each burst of messages. An
// answer is compared with the one before and parsed in full only where it differs. At full speed each burst of answers is followed by
// as many new messages. With a rate messages leave by a schedule made beforehand, in ticks: a round trip then counts from the time at
// which the message was due, so that a broker that stalls does not hide its stall by holding up the generator. Where just one message
// is in flight on a connection, each connection has a goroutine that goes through Go's network as Ping does, so that the
// two can be compared.
// All goroutines end before the functions return. The functions may be called from any goroutine, and at the same time.
package bench
