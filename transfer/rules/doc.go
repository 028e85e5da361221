// Package rules decides what replication may do, and does none of it: no socket, no file, no goroutine, no clock.
//
// The central type is [State], what a master knows of its slaves: which sessions there are, whose they are, what they
// acknowledged, and from that who is usable, how far the log is replicated and which report is a lie. Times are arguments,
// in milliseconds of any clock that does not go back. A State is for one goroutine at a time; its owner serializes calls.
//
// The remaining functions are the two sides' arithmetic: how many slaves a write needs ([Need]), where a session starts
// and how large a frame gets ([NewestStart], [BatchSize]), and on the slave's side whether a position fits a master
// ([Fit]), what to report first ([Begin]) and whether a frame may be written ([Frame]).
//
// # Counting
//
// A write needs inSyncReplicas copies, the master's included, so Need is one less. A slave that said who it is counts
// once however many sessions it has; one that cannot (Apache's) counts once per connection. A session counts from its
// first report to its end. How far the log is replicated is the Need-th highest acknowledged offset over distinct slaves;
// it never falls, because a slave that leaves takes nothing back from what it held.
package rules
