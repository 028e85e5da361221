// Package remote is the little of a RocketMQ client that measuring and the tour need: send one message, pull, create a topic, ask
// a broker how far its log goes and a name server who the masters are. It works against any RocketMQ broker.
//
// The central type is [Client], a thin layer of names over the pipelined outbound client; it may be used from any goroutine and
// starts none of its own beyond that client's, which end with Close.
package remote
