package transfer

import "errors"

var (
	// ErrNoMaster is what a Peer answers while no master is known. The slave says so once and waits.
	ErrNoMaster = errors.New("no master known")
	// ErrNotSupported is what a Peer answers when the master does not know the request, as an Apache
	// master does not know the hello: the slave goes on without it.
	ErrNotSupported = errors.New("the master does not support this request")
	// ErrNoRecord is what Peer.Record answers when the master holds no record at exactly that offset.
	ErrNoRecord = errors.New("no record at this offset")
	// ErrClosed is returned by calls on a Master or Slave that was closed.
	ErrClosed = errors.New("replication closed")
	// ErrOptions is wrapped by every complaint about an option's value.
	ErrOptions = errors.New("replication option out of range")
	// ErrAddress is wrapped when the HA address cannot be listened on.
	ErrAddress = errors.New("HA address cannot be used")
)
