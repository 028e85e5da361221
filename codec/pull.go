package codec

// PullHeader is the header of a pull: codes 11 and 361, in both header forms.
// Decode allocates nothing once the value is warm; use one per loop. Slices
// live until the frame dies or the next Decode, whichever is first.
type PullHeader struct {
	ConsumerGroup, Topic, Subscription, ExpressionType []byte
	QueueID, MaxMsgNums, SysFlag                       int32
	MaxMsgBytes                                        int32 // 0 if absent: no limit of the client's own
	QueueOffset, CommitOffset                          int64
	SuspendTimeoutMillis                               int64
	SubVersion                                         int64

	scratch []byte
}

// Bits of a pull's SysFlag (Apache class PullSysFlag).
const (
	PullCommitOffset int32 = 1 << 0 // CommitOffset is to be stored
	PullSuspend      int32 = 1 << 1 // may be held when there is nothing yet
	PullSubscription int32 = 1 << 2 // Subscription counts, not the heartbeat's
	PullClassFilter  int32 = 1 << 3
	PullLite         int32 = 1 << 4
)

// Fields of a pull that must be there, as bits of a set.
const (
	pullGroup = 1 << iota
	pullTopic
	pullQueueID
	pullQueueOffset
	pullMaxMsgNums
	pullRequired = 1<<iota - 1
)

// Decode reads the extFields of v in one pass. Group, topic, queue id, queue
// offset and the number of messages must be there; what else is absent is zero.
// Errors are ErrField, with the field's name and value.
func (h *PullHeader) Decode(v *View) error {
	*h = PullHeader{scratch: roomFor(h.scratch, v.ext)}
	seen := 0
	r := v.fields()
	for {
		name, value, ok := r.next()
		if !ok {
			break
		}
		if value.kind == tokenNull {
			continue
		}
		bit, numeric, ok := h.set(name.raw, value)
		if numeric && !ok {
			return badNumber(string(name.raw), value)
		}
		seen |= bit
	}
	if seen&pullRequired != pullRequired || len(h.ConsumerGroup) == 0 || len(h.Topic) == 0 {
		return h.firstMissing(seen)
	}
	return nil
}

// set stores one field. bit is its place among the required ones; numeric says
// that ok tells whether its number could be read.
func (h *PullHeader) set(name []byte, value token) (bit int, numeric, ok bool) {
	switch string(name) {
	case "consumerGroup":
		h.ConsumerGroup = h.text(value)
		return pullGroup, false, true
	case "topic":
		h.Topic = h.text(value)
		return pullTopic, false, true
	case "subscription":
		h.Subscription = h.text(value)
	case "expressionType":
		h.ExpressionType = h.text(value)
	case "queueId":
		h.QueueID, ok = value.int32()
		return pullQueueID, true, ok
	case "queueOffset":
		h.QueueOffset, ok = value.int64()
		return pullQueueOffset, true, ok
	case "maxMsgNums":
		h.MaxMsgNums, ok = value.int32()
		return pullMaxMsgNums, true, ok
	case "sysFlag":
		h.SysFlag, ok = value.int32()
		return 0, true, ok
	case "maxMsgBytes":
		h.MaxMsgBytes, ok = value.int32()
		return 0, true, ok
	case "commitOffset":
		h.CommitOffset, ok = value.int64()
		return 0, true, ok
	case "suspendTimeoutMillis":
		h.SuspendTimeoutMillis, ok = value.int64()
		return 0, true, ok
	case "subVersion":
		h.SubVersion, ok = value.int64()
		return 0, true, ok
	}
	return 0, false, true
}

func (h *PullHeader) firstMissing(seen int) error {
	switch {
	case len(h.ConsumerGroup) == 0:
		return missing("consumerGroup")
	case len(h.Topic) == 0:
		return missing("topic")
	case seen&pullQueueID == 0:
		return missing("queueId")
	case seen&pullQueueOffset == 0:
		return missing("queueOffset")
	}
	return missing("maxMsgNums")
}

func (h *PullHeader) text(value token) []byte {
	var b []byte
	b, h.scratch = value.bytes(h.scratch)
	return b
}
