package codec

import "math"

// sendShape is what a shape knows of a send besides: where its fields lie in the header, and all that cannot change in a header that
// fits. Nothing that can change is remembered: it is read from each header.
//
// It fixes, against the rule for values, what a producer says the same way each time: the numbers and flags that have no place below,
// the names of the properties, and the values of those that ask something of the broker.
type sendShape struct {
	known bool
	fixed SendHeader // its numbers, flags and marks; no slices

	group, topic, defaultTopic, properties            span // {0, 0}: absent
	queueID, sysFlag, bornTimestamp, flag, reconsumes span // likewise

	text  []byte // of the properties: those of the last header decoded
	runs  [propertyRuns]run
	count int
	key   span // the value of UNIQ_KEY, within text
}

// propertyRuns is how many loose parts properties can have.
const propertyRuns = 12

// run is a loose part of the properties: size bytes of the header without escapes, and where they stand in the text.
type run struct{ from, at, size uint32 }

// learnSend takes in the header that was just learned from v, if it is a send that can be read by places.
func (p *shape) learnSend(v *View) {
	s := &p.send
	s.known = false
	if !isSend(p.code) || s.fixed.decodeFields(v) != nil {
		return
	}
	*s = sendShape{fixed: s.fixed, text: roomFor(s.text, v.ext)}
	s.known = s.placeFields(p) && s.placeProperties(p)
	f := &s.fixed // the frame dies, and its slices with it
	f.ProducerGroup, f.Topic, f.DefaultTopic, f.Properties, f.Marks.UniqueKey = nil, nil, nil, nil, nil
}

// placeFields notes where the fields lie. false: one stands twice or has escapes where nobody has any.
func (s *sendShape) placeFields(p *shape) bool {
	seen := 0
	for i := range p.index[:p.count] {
		f := &p.index[i]
		letter := sendField(f.name.of(p.header), shortNames(p.code))
		if letter == 0 {
			continue
		}
		bit := 1 << (letter - 'a')
		if seen&bit != 0 || f.escaped && letter != 'i' {
			return false
		}
		seen |= bit
		if place := s.place(letter); place != nil {
			*place = f.value
		} else {
			p.fix(f.value)
		}
	}
	return true
}

// place is where the span of a field is kept; nil for one that is fixed.
func (s *sendShape) place(letter byte) *span {
	switch letter {
	case 'a':
		return &s.group
	case 'b':
		return &s.topic
	case 'c':
		return &s.defaultTopic
	case 'e':
		return &s.queueID
	case 'f':
		return &s.sysFlag
	case 'g':
		return &s.bornTimestamp
	case 'h':
		return &s.flag
	case 'i':
		return &s.properties
	case 'j':
		return &s.reconsumes
	}
	return nil
}

// placeProperties fixes the properties but for the plain parts of values, and notes where those lie. false: there are too many.
func (s *sendShape) placeProperties(p *shape) bool {
	var from [shapeLimit]uint32 // per byte of text, which byte of the header it is; 0: it comes of an escape
	s.text = unescapeFrom(s.text, p.header, s.properties, p.form, &from)
	p.fix(s.properties)
	for rest := s.text; len(rest) > 0; {
		at := len(s.text) - len(rest)
		name, value, next, ok := nextProperty(rest)
		if rest = next; !ok {
			continue
		}
		at += len(name) + 1
		if string(name) == PropUniqKey {
			s.key = span{uint32(at), uint32(at + len(value))}
		}
		if !marks(name) && !s.loosen(p, at, from[at:at+len(value)]) {
			return false
		}
	}
	return true
}

// unescapeFrom appends the text of a value to dst, which is empty, and notes in from where each byte was.
func unescapeFrom(dst, header []byte, value span, form Serialize, from *[shapeLimit]uint32) []byte {
	for i := value.from; i < value.to; {
		if form != JSON || header[i] != '\\' {
			from[len(dst)] = i
			dst = append(dst, header[i])
			i++
			continue
		}
		size := 0
		dst, size = appendEscape(dst, header[i:value.to])
		i += uint32(size)
	}
	return dst
}

// loosen makes runs of the bytes of one property's value that are not escaped; the value begins at text[at].
func (s *sendShape) loosen(p *shape, at int, from []uint32) bool {
	for k := 0; k < len(from); k++ {
		first := from[k]
		if first == 0 || p.header[first] < ' ' {
			continue
		}
		r := run{from: first, at: uint32(at + k), size: 1}
		for k+1 < len(from) && from[k+1] == first+r.size && p.header[from[k+1]] >= ' ' {
			k++
			r.size++
		}
		if s.count == propertyRuns {
			return false
		}
		s.runs[s.count] = r
		s.count++
		p.loosen(span{r.from, r.from + r.size})
	}
	return true
}

func (p *shape) fix(s span) { clear(p.loose[s.from:s.to]) }

// decodeLike reads the header of v, which fits the shape, by places. false: it is to be read in the usual way.
func (h *SendHeader) decodeLike(v *View) bool {
	s, header, ok := &v.shape.send, v.header, true
	h.QueueID = s.queueID.small(header, &ok)
	h.SysFlag = s.sysFlag.small(header, &ok)
	h.Flag = s.flag.small(header, &ok)
	h.ReconsumeTimes = s.reconsumes.small(header, &ok)
	h.BornTimestamp = 0
	if s.bornTimestamp.to != 0 {
		born, isNumber := s.bornTimestamp.number(header)
		h.BornTimestamp, ok = born, ok && isNumber
	}
	if !ok {
		return false
	}
	h.ProducerGroup, h.Topic, h.DefaultTopic = s.group.text(header), s.topic.text(header), s.defaultTopic.text(header)
	h.DefaultTopicQueueNums, h.MaxReconsumeTimes = s.fixed.DefaultTopicQueueNums, s.fixed.MaxReconsumeTimes
	h.UnitMode, h.Batch, h.HasProperties = s.fixed.UnitMode, s.fixed.Batch, s.fixed.HasProperties
	h.Properties, h.Marks = nil, s.fixed.Marks
	if h.HasProperties {
		h.Properties = s.fill(header)
		h.Marks.UniqueKey = s.key.text(h.Properties)
	}
	return true
}

// fill is the properties' text with the loose parts of header.
func (s *sendShape) fill(header []byte) []byte {
	for i := range s.runs[:s.count] {
		r := &s.runs[i]
		copy(s.text[r.at:r.at+r.size], header[r.from:r.from+r.size])
	}
	return s.text[:len(s.text):len(s.text)]
}

// text is the span's bytes, nil for the zero span.
func (s span) text(b []byte) []byte {
	if s.to == 0 {
		return nil
	}
	return s.of(b)
}

// small is a number of 31 bits, most often of one digit; 0 for the zero span. What is none clears ok.
func (s span) small(header []byte, ok *bool) int32 {
	if s.to-s.from == 1 {
		if d := header[s.from] - '0'; d <= 9 {
			return int32(d)
		}
	}
	if s.to == 0 {
		return 0
	}
	n, isNumber := s.number(header)
	*ok = *ok && isNumber && n <= math.MaxInt32
	return int32(n)
}
