package engine

// Buffers of a loop: taken for a turn's output or an unfinished frame and given back, so that an idle connection holds none.

const (
	smallBuffer = 4 << 10
	maxBuffer   = 256 << 10 // bigger ones are not kept (but for one)
	maxFree     = 128       // buffers kept
	maxFreeSize = 2 << 20   // and bytes in them
)

// buffer is an empty buffer.
func (l *Loop) buffer() []byte {
	if n := len(l.free); n > 0 {
		b := l.free[n-1]
		l.free[n-1] = nil
		l.free = l.free[:n-1]
		l.freeSize -= cap(b)
		return b
	}
	return make([]byte, 0, smallBuffer)
}

// partBuffer is an empty buffer for the beginning of a frame of the given size; 0 means unknown.
func (l *Loop) partBuffer(size int) []byte {
	if size <= smallBuffer {
		return l.buffer()
	}
	return l.bigBuffer(min(size, firstPart))
}

// bigBuffer is an empty buffer for at least size bytes.
func (l *Loop) bigBuffer(size int) []byte {
	if n := len(l.free); n > 0 && cap(l.free[n-1]) >= size {
		return l.buffer()
	}
	if cap(l.big) >= size && size > firstPart {
		b := l.big
		l.big = nil
		return b
	}
	return make([]byte, 0, size)
}

// putBuffer takes a buffer back.
func (l *Loop) putBuffer(b []byte) {
	switch size := cap(b); {
	case size == 0:
	case size > maxBuffer:
		if size <= maxKeptBig && size > cap(l.big) {
			l.big, l.bigUsed = b[:0], true
		}
	case len(l.free) < maxFree && l.freeSize+size <= maxFreeSize:
		l.freeSize += size
		l.free = append(l.free, b[:0])
	}
}

// trimBuffers lets go of the big buffer if nobody used it since the last tick.
func (l *Loop) trimBuffers() {
	if !l.bigUsed {
		l.big = nil
	}
	l.bigUsed = false
}
