// Package codec turns bytes into values and back, and does nothing else: no
// I/O, no clocks, no goroutines, no global state. It knows everything Apache
// RocketMQ brokers, clients and name servers say to each other, and how a
// broker's commit log holds a message:
//
//   - remoting frames, as a value (Command, the cold path) or as a view that
//     aliases the frame (View, the hot path), with both forms of the header,
//   - the headers of sends and pulls (SendHeader, PullHeader) and the frames
//     that answer them (AppendSendResponse, StoredAnswers, AppendPullResponse, …),
//   - message records (Record), their properties text, batches, message ids,
//   - the replication stream's headers and reports (PutHAHeader, PutHAReport),
//   - JSON bodies (Marshal, Unmarshal), in the dialects fastjson 1 and 2 write.
//
// The central type is View: one frame read once, in place.
//
// # Who owns what
//
// Slices handed out alias what was handed in and die with it; strings are
// copies. Append functions only grow the slice they are given. The functions
// of the hot paths allocate nothing: View.Parse, SendHeader.Decode and
// PullHeader.Decode on values that are used again, Record.Decode, Record.Append
// and the response writers on a slice with room.
//
// Functions may be called from any goroutine; a value (View, SendHeader,
// PullHeader, Record) belongs to one goroutine at a time.
//
// # Bad input
//
// No input makes a decoder panic or read beyond the slice it was given. Errors
// are the sentinels in errors.go, wrapped with what was wrong; use errors.Is.
package codec
