package transfer

// MasterStatus is what an operator needs to know about a master's slaves. It is a copy, safe to keep.
// No number in it is ever negative.
type MasterStatus struct {
	Addr string `json:"addr"`
	// Rule says in words what a write waits for.
	Rule string `json:"rule"`
	// Need is how many slaves must acknowledge a sync write; Usable how many could just now.
	Need   int `json:"need"`
	Usable int `json:"usable"`
	// MaxOffset is the log's end, Replicated how far the needed slaves have acknowledged (the log's
	// end if none is needed).
	MaxOffset  int64 `json:"maxOffset"`
	Replicated int64 `json:"replicated"`

	Slaves []SlaveInfo `json:"slaves"`

	// Waiting is how many answers wait, OldestWaitMs for how long the first of them has.
	Waiting      int   `json:"waiting"`
	OldestWaitMs int64 `json:"oldestWaitMs"`
	// SyncWait describes the waits that ended in the last one to two minutes.
	SyncWait WaitStats `json:"syncWait"`

	// Refusals are the latest connections or positions that were refused, oldest first; Refused counts all.
	Refusals []Refusal `json:"refusals"`
	Refused  int64     `json:"refused"`
}

// SlaveInfo describes one connection on the HA port.
type SlaveInfo struct {
	// ID is what the slave calls itself; empty for one that cannot say (Apache's).
	ID   string `json:"id"`
	Addr string `json:"addr"`
	// State is Connected (no report yet), CatchingUp or InSync.
	State string `json:"state"`
	// Acked is the last offset the slave reported, -1 before its first report is rendered as 0.
	Acked    int64 `json:"acked"`
	Reported bool  `json:"reported"`
	LagBytes int64 `json:"lagBytes"`
	// LagMs is for how long the slave has not held all that had been written.
	LagMs int64 `json:"lagMs"`
	// SentFrom is the first offset of this connection, Sent the end of what it was sent.
	SentFrom    int64  `json:"sentFrom"`
	Sent        int64  `json:"sent"`
	BytesPerSec int64  `json:"bytesPerSec"`
	LastError   string `json:"lastError,omitempty"`
	InSync      bool   `json:"inSync"`
	// ConnectedMs and LastReportMs are milliseconds since the epoch.
	ConnectedMs  int64 `json:"connectedMs"`
	LastReportMs int64 `json:"lastReportMs"`
}

// Refusal is one refused connection or position.
type Refusal struct {
	ID     string `json:"id,omitempty"`
	Addr   string `json:"addr"`
	Reason string `json:"reason"`
	WhenMs int64  `json:"whenMs"`
}

// WaitStats are percentiles of sync waits, in microseconds.
type WaitStats struct {
	Count   int64 `json:"count"`
	Failed  int64 `json:"failed"`
	P50Us   int64 `json:"p50Us"`
	P90Us   int64 `json:"p90Us"`
	P99Us   int64 `json:"p99Us"`
	P999Us  int64 `json:"p999Us"`
	MaxUs   int64 `json:"maxUs"`
	SinceMs int64 `json:"sinceMs"`
}

// SlaveState is where a slave stands with its master.
type SlaveState string

// The states of a slave.
const (
	// Waiting: no master is known.
	Waiting SlaveState = "Waiting"
	// Connecting: a master is known and does not answer (yet).
	Connecting SlaveState = "Connecting"
	// Checking: connected; positions and histories are being compared.
	Checking SlaveState = "Checking"
	// Transfer: the log is being followed.
	Transfer SlaveState = "Transfer"
	// Refused: this store does not fit the master's log; nothing is written until that changes.
	Refused SlaveState = "Refused"
	// Closed: the slave was closed, or not started.
	Closed SlaveState = "Closed"
)

// SlaveStatus is what an operator needs to know about a slave. It is a copy, safe to keep.
type SlaveStatus struct {
	State      SlaveState `json:"state"`
	Identity   string     `json:"identity"`
	MasterAddr string     `json:"masterAddr"`
	// MinOffset and MaxOffset bound what this slave really holds.
	MinOffset int64 `json:"minOffset"`
	MaxOffset int64 `json:"maxOffset"`
	// MasterMin and MasterMax are the master's bounds when they were last asked for.
	MasterMin int64 `json:"masterMin"`
	MasterMax int64 `json:"masterMax"`
	// Reported is the last offset reported, LastReadMs when the master was last heard (ms since the epoch).
	Reported   int64  `json:"reported"`
	LastReadMs int64  `json:"lastReadMs"`
	LastError  string `json:"lastError,omitempty"`
	// LastErrorMs is when LastError happened.
	LastErrorMs int64 `json:"lastErrorMs,omitempty"`
	// HistoryCheck says in words what was compared before following, and how it came out.
	HistoryCheck string `json:"historyCheck,omitempty"`
	// Received is how many body bytes came over all connections, Sessions how often a transfer began.
	Received int64 `json:"received"`
	Sessions int64 `json:"sessions"`
}
