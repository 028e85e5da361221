// Package broker is what a broker is: a role, a store, the clients that talk to it, and the tables it shares with its slaves.
//
// A Broker is made by Start and ended by Close. It owns
//
//   - one engine.Server on the remoting port and the VIP port: its event loops run every request handler, one loopState per loop;
//   - the commitlog.Store, whose dispatcher goroutine builds the consume queues and wakes held pulls;
//   - as a master, a transfer.Master (the slaves) with the waiter ring; as a slave, a transfer.Slave and the metadata sync;
//   - one registration goroutine per name server, so that one that hangs delays nobody;
//   - a housekeeping goroutine: client expiry, held pulls whose time is over, saving the tables.
//
// A send never blocks a loop: it is checked and encoded when its frame arrives, appended together with its neighbours at the
// end of the loop's turn, and answered in the same turn or, where it waits for the disk or a slave, when its ticket is done. Handlers
// that may be slow (scans, JSON of whole tables, reads of cold data) run on a bounded pool and answer through their loop.
//
// Everything on a *Broker is safe from any goroutine; loopState and what hangs on it belong to one loop.
package broker
