package rules

import "time"

const (
	// starvedBelow, in bytes per second, is less than any slave far behind should get that a processor is all it lacks for.
	starvedBelow = 32 << 20
	// starvedAfter is for how long a slave may be starved before it is served as ordinary work, and ordinaryFor for how long it is then.
	starvedAfter = 2 * time.Second
	ordinaryFor  = 10 * time.Second
)

// Patience says whether a slave far behind may be served in the background, where all else goes before it. One that is starved there
// is served as ordinary work for a while. The zero value is patient.
type Patience struct {
	starved  time.Duration
	ordinary time.Time // until then
}

// Look notes what was seen for a time took that ends at now: for how long of it the work waited for a processor, how many bytes
// were sent, and by how many the log grew. A slave is starved that got little, or less than the log grew, while the work waited for a
// quarter of the time or more. Else it is the slave, the line or the disk that takes its time, and a better place would not help.
func (p *Patience) Look(now time.Time, took, waited time.Duration, sent, grown int64) {
	if waited < took/4 || float64(sent) >= max(starvedBelow*took.Seconds(), float64(grown)) {
		p.starved = 0
		return
	}
	if p.starved += took; p.starved >= starvedAfter {
		p.starved, p.ordinary = 0, now.Add(ordinaryFor)
	}
}

// Exhausted says that for now the work is an ordinary one.
func (p *Patience) Exhausted(now time.Time) bool { return now.Before(p.ordinary) }
