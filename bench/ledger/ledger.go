// Package ledger keeps account of messages: what was sent, what a broker acknowledged and where it said it put it, and what
// consumers were given. Bodies name themselves by an id and hold a checksum, so that what comes back can be told from
// what was sent without keeping it.
//
// The central type is [Ledger]. It may be used from any goroutine and starts none.
package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
)

// MinSize is the size of the smallest body: id, size and checksum.
const MinSize = 8 + 4 + 4

// ErrBody says that a body is not as it was made.
var ErrBody = errors.New("the body is not as it was sent")

// Body makes the body of message id, size bytes long but at least MinSize.
func Body(id uint64, size int) []byte {
	b := make([]byte, max(size, MinSize))
	binary.BigEndian.PutUint64(b, id)
	binary.BigEndian.PutUint32(b[8:], uint32(len(b)))
	sum := len(b) - 4
	rng := rand.NewPCG(id, 0)
	for i := 12; i < sum; i += 8 {
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], rng.Uint64())
		copy(b[i:sum], word[:])
	}
	binary.BigEndian.PutUint32(b[sum:], crc32.ChecksumIEEE(b[:sum]))
	return b
}

// ID checks a body and returns the id that it was made with.
func ID(body []byte) (uint64, error) {
	if len(body) < MinSize {
		return 0, fmt.Errorf("%w: %d bytes, the shortest has %d", ErrBody, len(body), MinSize)
	}
	id, size, sum := binary.BigEndian.Uint64(body), binary.BigEndian.Uint32(body[8:]), len(body)-4
	if int(size) != len(body) {
		return 0, fmt.Errorf("%w: message %d has %d bytes, %d were sent", ErrBody, id, len(body), size)
	}
	if crc32.ChecksumIEEE(body[:sum]) != binary.BigEndian.Uint32(body[sum:]) {
		return 0, fmt.Errorf("%w: the checksum of message %d does not hold", ErrBody, id)
	}
	return id, nil
}

// Place is a message's place in a topic.
type Place struct {
	Broker string
	Queue  int
	Offset int64
}

// entry is what is known of one message.
type entry struct {
	size  int
	acked bool
	place Place // if acked
	seen  int   // times consumed
}

// Ledger is the account.
type Ledger struct {
	mu      sync.Mutex
	entries []entry // by id, from 1
	faults  []string
	faultN  int
}

// maxFaults is how many faults are kept in words; the others are counted.
const maxFaults = 20

// Begin notes that a message of a size is about to be sent, and returns its body.
func (l *Ledger) Begin(size int) (id uint64, body []byte) {
	l.mu.Lock()
	l.entries = append(l.entries, entry{size: max(size, MinSize)})
	id = uint64(len(l.entries))
	l.mu.Unlock()
	return id, Body(id, size)
}

// Acked notes that a broker acknowledged the message and said where it is.
func (l *Ledger) Acked(id uint64, at Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.entries[id-1]
	e.acked, e.place = true, at
}

// Consumed checks a message that a consumer was given.
func (l *Ledger) Consumed(at Place, body []byte) {
	id, err := ID(body)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.fault("%v: %v", at, err)
		return
	case id == 0 || id > uint64(len(l.entries)):
		l.fault("%v: message %d was never sent", at, id)
		return
	}
	e := &l.entries[id-1]
	e.seen++
	switch {
	case len(body) != e.size:
		l.fault("%v: message %d has %d bytes, %d were sent", at, id, len(body), e.size)
	case e.seen > 1:
		l.fault("%v: message %d was given %d times", at, id, e.seen)
	case e.acked && e.place != at:
		l.fault("message %d was given at %v, acknowledged at %v", id, at, e.place)
	}
}

func (l *Ledger) fault(format string, args ...any) {
	l.faultN++
	if len(l.faults) < maxFaults {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// Count is a Ledger's state.
type Count struct {
	Sent, Acked int
	Consumed    int // different messages, acknowledged or not
	Missing     int // acknowledged and not consumed
	Extra       int // consumed and not acknowledged: their sender was cut off before it heard
	Faults      int // messages altered, given twice, at another place than said, or never sent
}

// Count sums up.
func (l *Ledger) Count() Count {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := Count{Sent: len(l.entries), Faults: l.faultN}
	for _, e := range l.entries {
		if e.acked {
			c.Acked++
		}
		if e.seen > 0 {
			c.Consumed++
		}
		if e.acked && e.seen == 0 {
			c.Missing++
		}
		if !e.acked && e.seen > 0 {
			c.Extra++
		}
	}
	return c
}

// Err is nil if every acknowledged message was consumed exactly as sent, and otherwise says what is wrong.
func (l *Ledger) Err() error {
	c := l.Count()
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs []error
	if c.Missing > 0 {
		errs = append(errs, fmt.Errorf("%d of %d acknowledged messages were not consumed, the first is %d", c.Missing, c.Acked, l.firstMissing()))
	}
	for _, f := range l.faults {
		errs = append(errs, errors.New(f))
	}
	if more := l.faultN - len(l.faults); more > 0 {
		errs = append(errs, fmt.Errorf("and %d faults more", more))
	}
	return errors.Join(errs...)
}

func (l *Ledger) firstMissing() int {
	for i, e := range l.entries {
		if e.acked && e.seen == 0 {
			return i + 1
		}
	}
	return 0
}
