package rules

import "fmt"

// Need gives the number of slaves that must acknowledge a write. inSyncReplicas counts the master: 0 stands for the
// default, which in the sync role is one slave; 1 waits for nobody.
func Need(sync bool, inSyncReplicas int) int {
	switch {
	case !sync:
		return 0
	case inSyncReplicas == 0:
		return 1
	default:
		return max(inSyncReplicas-1, 0)
	}
}

// Text says the rule in force in words, for the start log and the status.
func Text(sync bool, inSyncReplicas, minInSyncReplicas int) string {
	need := Need(sync, inSyncReplicas)
	var text string
	switch {
	case !sync:
		text = "asynchronous: a write waits for no slave"
	case need == 0:
		text = "SYNC_MASTER with inSyncReplicas=1: a write waits for no slave and may be lost with this master"
	case need == 1:
		text = "a write waits for 1 slave (inSyncReplicas=2, the master included)"
	default:
		text = fmt.Sprintf("a write waits for %d different slaves (inSyncReplicas=%d, the master included)", need, need+1)
	}
	if minInSyncReplicas > 1 {
		text += fmt.Sprintf("; minInSyncReplicas=%d applies to acting-master and controller modes only and is not consulted", minInSyncReplicas)
	}
	return text
}

// NewestStart is where a slave that reported 0 is served from: the first byte of the newest segment.
func NewestStart(end, segmentSize int64) int64 {
	return end - end%segmentSize
}

// BatchSize is the largest body for the next frame of a slave that lags by so many bytes: base when it is caught up, half
// the lag beyond that so that several frames are under way, at most limit.
func BatchSize(lag, base, limit int64) int64 {
	return min(max(lag/2, base), limit)
}

// HeartbeatDue says whether an empty frame is due, all times in milliseconds.
func HeartbeatDue(lastSent, interval, now int64) bool {
	return now-lastSent >= interval
}
