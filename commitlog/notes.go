package commitlog

import "sync/atomic"

// noteRing is how many notes can wait for the dispatcher, a power of two: some 20 ms of appends at full speed.
const noteRing = 8192

// note is what the append section knows of a record: all that its place in a consume queue takes, so that the dispatcher need not bring the
// record itself into its processor's cache again.
type note struct {
	pos, number, storeTime int64
	queue                  *Queue
	size, tag              int32
}

func (n *note) end() int64 { return n.pos + int64(n.size) }

// notes is a bounded ring of notes from the append section to the dispatcher, in the order of the log. They are hints: a note counts only
// for the record at the very position where the dispatcher stands, a missing one makes it read the record, and whoever stops both sides
// ([Store.quiesce]) throws all of them away, so that none outlives a cut, a change of role or the end of a queue.
type notes struct {
	ring []note // of a power of two; none are taken if it is empty

	// Of the append section:
	made   uint64
	room   uint64 // seen of taken
	posted atomic.Uint64
	_      [64]byte // the two sides write to different cache lines

	// Of the dispatcher, under its lock:
	next  uint64
	known uint64 // seen of posted
	taken atomic.Uint64
}

// add leaves a note, if there is room. Needs the append lock.
func (l *notes) add(n note) {
	if l.made-l.room >= uint64(len(l.ring)) {
		if l.room = l.taken.Load(); l.made-l.room >= uint64(len(l.ring)) {
			return
		}
	}
	l.ring[l.made&uint64(len(l.ring)-1)] = n
	l.made++
}

// post shows the notes left so far to the dispatcher. It comes before the written watermark moves. Needs the append lock.
func (l *notes) post() {
	if l.made != l.posted.Load() {
		l.posted.Store(l.made)
	}
}

// at is the note for the record at pos, nil if there is none. What is noted of earlier records is passed over. Valid until release;
// needs the dispatch lock.
func (l *notes) at(pos int64) *note {
	for {
		if l.next == l.known {
			if l.known = l.posted.Load(); l.next == l.known {
				return nil
			}
		}
		n := &l.ring[l.next&uint64(len(l.ring)-1)]
		if n.pos >= pos {
			if n.pos == pos {
				return n
			}
			return nil
		}
		l.next++
	}
}

// release gives the places of the notes passed over back to the append section. Needs the dispatch lock.
func (l *notes) release() {
	if l.next != l.taken.Load() {
		l.taken.Store(l.next)
	}
}

// drop throws all notes away. Needs the dispatch lock and the append lock.
func (l *notes) drop() {
	if l.made != l.next {
		clear(l.ring)
	}
	l.next, l.known, l.room = l.made, l.made, l.made
	l.posted.Store(l.made)
	l.taken.Store(l.made)
}

// noteFor leaves a note of an item that was just stored, if its caller has told enough. Needs the append lock.
func (s *Store) noteFor(a *Append) {
	q := a.Queue
	tag := int32(a.TagsCode)
	if !a.TagsKnown || q == nil || a.Count > 1 || int64(tag) != a.TagsCode || q.topic == scheduleTopic {
		return
	}
	s.notes.add(note{pos: a.Offset, number: a.QueueOffset, storeTime: a.StoreTimestamp, queue: q, size: int32(len(a.Bytes)), tag: tag})
}
