package trial

// What figures are held to. All but memory, start and lag are ratios within one run.
const (
	boundSyncAsync   = 0.95 // throughput, sync ÷ async
	boundSyncStub    = 0.4  // throughput, sync ÷ the bare stub
	boundSyncPing    = 1.25 // p50 with one in flight, sync ÷ bare four hops
	boundSyncAbove   = 1.25 // by how many bare two-hop exchanges sync lies above async, p50 with one in flight
	boundApache      = 10   // throughput, sync ÷ Apache's
	boundApacheTail  = 0.1  // p99.9 at a fixed rate, sync ÷ Apache's
	boundRedis       = 1    // p50 with one in flight, sync ÷ Redis SET and WAIT 1
	boundProducers   = 2    // producers' p99, while a slave fetches cold files ÷ without a slave
	boundCatchup     = 0.8  // bytes per second, a slave's catch-up ÷ the bare transfer
	boundFanout      = 0.7  // throughput, 4 slaves ÷ 1
	boundLagMs       = 5    // p99
	boundRssAnon     = 64   // MiB
	boundStartEmpty  = 0.15 // s
	boundStartClean  = 0.3  // s
	boundStartKilled = 2    // s
)
