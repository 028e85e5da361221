# Attributes the samples of a broker's processor time to the steps of one message's way: to the first function of the list
# below that is on the stack. Reads `perf script -F comm,tid,time,event,ip,sym`; ns is the processor time of the process per message.
#
#   perf record -g -F 2000 -e cpu-clock -p PID -- sleep 4
#   perf script -F comm,tid,time,event,ip,sym | awk -v ns=2500 -f docs/budget.awk
BEGIN {
	n = 0
	step("codec.(*View).Parse", "read the header")
	step("codec.(*SendHeader).Decode", "read the header")
	step("broker.(*loopState).encode", "check and encode the record")
	step("commitlog.(*Store).Append", "append, with the ring's ticket")
	step("transfer.(*session).offer", "send to the slaves")
	step("transfer.(*session).catchUp", "send to the slaves")
	step("transfer.(*Master).reports", "take a slave's report, end tickets")
	step("broker.(*loopState).reply", "write the answer's header")
	step("engine.(*conn).flush", "write the answers to the sockets")
	step("commitlog.(*dispatcher).run", "build the consume queues")
	step("commitlog.(*window).run", "prepare pages ahead")
	step("commitlog.(*flusher).run", "write the log to the disk")
	step("commitlog.(*keeper).run", "write queues and checkpoint to the disk")
	step("transfer.(*socket).readv", "read the master's frames")
	step("transfer.(*stream).acknowledge", "report")
	step("transfer.(*stream).follow", "take frames in")
	step("broker.(*Broker).OnFrame", "the rest of the send's handler")
	step("broker.(*Broker).OnTurn", "the rest of the send's handler")
	step("engine.(*events).OnTraffic", "cut frames, run the turn")
	step("gnet/v2", "read from the sockets, wait for events")
	step("runtime.", "Go's runtime: scheduler, timers, collector")
}
function step(name, text) { names[++n] = name; texts[n] = text }
function account(   i) {
	total++
	for (i = 1; i <= n; i++)
		if (index(stack, names[i])) { count[texts[i]]++; return }
	count["elsewhere"]++
}
/^[^ \t]/ || /:[ \t]+[0-9]* *cpu-clock/ { stack = ""; seen = 1; next }
/^[ \t]+[0-9a-f]+ / { stack = stack " " $2; next }
/^$/ { if (seen && stack != "") account(); seen = 0; stack = "" }
END {
	for (t in count) printf "%6.1f %%  %6.0f ns  %s\n", 100 * count[t] / total, ns * count[t] / total, t | "sort -rn"
}
