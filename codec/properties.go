package codec

import (
	"bytes"
	"unicode/utf8"
)

// Separators of a properties text: name 0x01 value 0x02, repeated. The last
// 0x02 may be missing.
const (
	propertyNameEnd  = 0x01
	propertyValueEnd = 0x02
)

// Names of properties the broker reads or writes itself (Apache class MessageConst).
const (
	PropKeys                  = "KEYS"
	PropTags                  = "TAGS"
	PropWait                  = "WAIT"
	PropDelay                 = "DELAY"
	PropRealTopic             = "REAL_TOPIC"
	PropRealQueueID           = "REAL_QID"
	PropRetryTopic            = "RETRY_TOPIC"
	PropOriginMessageID       = "ORIGIN_MESSAGE_ID"
	PropReconsumeTime         = "RECONSUME_TIME"
	PropMaxReconsumeTimes     = "MAX_RECONSUME_TIMES"
	PropTransactionPrepared   = "TRAN_MSG"
	PropProducerGroup         = "PGROUP"
	PropTransactionID         = "__transactionId__"
	PropTransactionCheckTimes = "TRANSACTION_CHECK_TIMES"
	PropCheckImmunityTime     = "CHECK_IMMUNITY_TIME_IN_SECONDS"
	PropUniqKey               = "UNIQ_KEY"
	PropMsgRegion             = "MSG_REGION"
	PropTraceOn               = "TRACE_ON"
	PropCluster               = "CLUSTER"
	PropInnerNum              = "INNER_NUM"
	PropInnerBase             = "INNER_BASE"
	PropTimerDeliverMs        = "TIMER_DELIVER_MS"
	PropTimerDelayMs          = "TIMER_DELAY_MS"
	PropTimerDelaySec         = "TIMER_DELAY_SEC"
	PropTimerOutMs            = "TIMER_OUT_MS"
)

// Marks is what a message's properties ask of a broker.
type Marks struct {
	NoWait      bool // WAIT is "false": the answer need not wait for disk and slaves
	Delayed     bool // to be delivered later
	Transaction bool
	UniqueKey   []byte // UNIQ_KEY, nil if there is none; aliases the properties
}

// ReadMarks reads the marks of a properties text. Of a name that stands twice
// the last value counts.
func ReadMarks(props []byte) (m Marks) {
	for len(props) > 0 {
		name, value, rest, ok := nextProperty(props)
		if props = rest; !ok {
			continue
		}
		switch string(name) {
		case PropWait:
			m.NoWait = string(value) == "false"
		case PropDelay:
			m.Delayed = string(value) != "0"
		case PropTimerDeliverMs, PropTimerDelayMs, PropTimerDelaySec:
			m.Delayed = true
		case PropTransactionPrepared:
			m.Transaction = string(value) == "true"
		case PropUniqKey:
			m.UniqueKey = value
		}
	}
	return m
}

// marks says which properties' values ReadMarks compares.
func marks(name []byte) bool {
	switch string(name) {
	case PropWait, PropDelay, PropTransactionPrepared:
		return true
	}
	return false
}

// EachProperty calls yield for each pair of a properties text until yield
// returns false. As in Java, pairs without a name, a value or the sign between
// them are passed over. The slices alias props.
func EachProperty(props []byte, yield func(name, value []byte) bool) {
	for len(props) > 0 {
		var name, value []byte
		var ok bool
		if name, value, props, ok = nextProperty(props); ok && !yield(name, value) {
			return
		}
	}
}

// Property is the value of a name; where a name stands twice, the last value,
// as in Java's map. The slice aliases props.
func Property(props []byte, name string) (value []byte, ok bool) {
	for len(props) > 0 {
		n, v, rest, good := nextProperty(props)
		if props = rest; good && string(n) == name {
			value, ok = v, true
		}
	}
	return value, ok
}

// Tag is the value of TAGS, as Property finds it, but quicker: it looks for the letter that is rarest in properties.
func Tag(props []byte) (tag []byte, ok bool) {
	const mark, rare, rareAt = PropTags + string(rune(propertyNameEnd)), 'G', 2
	for at := 0; ; {
		i := bytes.IndexByte(props[at:], rare)
		if i < 0 {
			return tag, ok
		}
		from := at + i - rareAt
		at += i + 1
		if from < 0 || !bytes.HasPrefix(props[from:], []byte(mark)) || from > 0 && props[from-1] != propertyValueEnd {
			continue
		}
		at = from + len(mark)
		value := props[at:]
		if end := bytes.IndexByte(value, propertyValueEnd); end >= 0 {
			value = value[:end:end]
		}
		if len(value) > 0 {
			tag, ok = value, true
		}
	}
}

// nextProperty cuts one pair off props. ok is false for one that does not count.
func nextProperty(props []byte) (name, value, rest []byte, ok bool) {
	sep := 0 // names are short: byte by byte is the quickest way through them
	for sep < len(props) && props[sep] != propertyNameEnd {
		if props[sep] == propertyValueEnd {
			return nil, nil, props[sep+1:], false
		}
		sep++
	}
	if sep == len(props) {
		return nil, nil, nil, false
	}
	name, value = props[:sep:sep], props[sep+1:]
	if end := bytes.IndexByte(value, propertyValueEnd); end >= 0 {
		value, rest = value[:end:end], value[end+1:]
	}
	return name, value, rest, len(name) > 0 && len(value) > 0
}

// AppendProperty appends a pair to the properties text dst, closing dst's last
// pair first if it is open. An empty value is not written: no reader would see
// it. Name and value must not hold the separators 0x01 and 0x02.
func AppendProperty[V ~string | ~[]byte](dst []byte, name string, value V) []byte {
	if len(value) == 0 {
		return dst
	}
	dst = closeProperties(dst)
	dst = append(dst, name...)
	dst = append(dst, propertyNameEnd)
	dst = append(dst, value...)
	return append(dst, propertyValueEnd)
}

// AppendPropertiesExcept appends the pairs of props whose names are not in
// names to the properties text dst, in their order.
func AppendPropertiesExcept(dst, props []byte, names ...string) []byte {
	for len(props) > 0 {
		name, value, rest, ok := nextProperty(props)
		if props = rest; ok && !contains(names, name) {
			dst = AppendProperty(dst, string(name), value)
		}
	}
	return dst
}

func contains(names []string, name []byte) bool {
	for _, n := range names {
		if n == string(name) {
			return true
		}
	}
	return false
}

func closeProperties(dst []byte) []byte {
	if OpenProperties(dst) {
		return append(dst, propertyValueEnd)
	}
	return dst
}

// OpenProperties tells whether the last pair of a properties text lacks its end.
func OpenProperties(props []byte) bool {
	return len(props) > 0 && props[len(props)-1] != propertyValueEnd
}

// TagsCode is what a consume queue keeps of a tag: Java's String.hashCode over
// its UTF-16 units, 32-bit, sign-extended. An empty tag is 0.
func TagsCode(tag []byte) int64 {
	var h int32
	for i := 0; i < len(tag); {
		if c := tag[i]; c < utf8.RuneSelf {
			h = 31*h + int32(c)
			i++
			continue
		}
		r, size := utf8.DecodeRune(tag[i:])
		i += size
		if r >= 0x10000 {
			h = 31*h + (0xD800 + (r-0x10000)>>10)
			r = 0xDC00 + (r-0x10000)&0x3FF
		}
		h = 31*h + r
	}
	return int64(h)
}
