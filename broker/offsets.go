package broker

import (
	"tandem/codec"
	"tandem/commitlog"
)

// queueOf finds the queue a request names; a nil queue comes with the answer to give.
func (b *Broker) queueOf(r *request) (*commitlog.Queue, answer) {
	topic := r.text("topic")
	id, isNumber := r.int32("queueId")
	if topic == "" {
		return nil, missingField(r, "topic")
	}
	if !isNumber || id < 0 {
		return nil, missingField(r, "queueId")
	}
	cfg, known := b.topics.Get(topic)
	if !known {
		return nil, failed(codec.TopicNotExist, "topic "+topic+" does not exist on broker "+b.set.BrokerName)
	}
	if id >= queueCount(cfg) {
		return nil, failed(codec.InvalidParameter, "queueId "+itoa(int64(id))+": topic "+topic+" has fewer queues on broker "+b.set.BrokerName)
	}
	return b.store.Queue(topic, id), ok()
}

func offsetAnswer(offset int64) answer { return answer{ext: map[string]string{"offset": itoa(offset)}} }

// queryOffset is a group's progress in a queue. One that has none begins at 0 if the whole queue is still there and near.
func (b *Broker) queryOffset(r *request) answer {
	q, a := b.queueOf(r)
	if q == nil {
		return a
	}
	group := r.text("consumerGroup")
	if group == "" {
		return missingField(r, "consumerGroup")
	}
	if offset, known := b.offsets.Query(group, q.Topic(), q.ID()); known {
		return offsetAnswer(offset)
	}
	if r.text("setZeroIfNotFound") != "false" && q.MinOffset() <= 0 && b.nearEnough(q) {
		return offsetAnswer(0)
	}
	return failed(codec.QueryNotFound, "group "+group+" has no offset for this queue of topic "+q.Topic())
}

// nearEnough tells whether the queue's first message is within what the machine keeps in memory.
func (b *Broker) nearEnough(q *commitlog.Queue) bool {
	var first [1]commitlog.Unit
	n, err := q.Read(0, first[:])
	return err == nil && (n == 0 || b.store.End()-first[0].Offset <= b.ramInUse)
}

func (b *Broker) updateOffset(r *request) answer {
	group, topic := r.text("consumerGroup"), r.text("topic")
	id, okID := r.int32("queueId")
	offset, okOffset := r.number("commitOffset")
	switch {
	case group == "":
		return missingField(r, "consumerGroup")
	case topic == "":
		return missingField(r, "topic")
	case !okID || id < 0:
		return missingField(r, "queueId")
	case !okOffset || offset < 0:
		return missingField(r, "commitOffset")
	}
	if _, known := b.topics.Get(topic); !known {
		return failed(codec.TopicNotExist, "topic "+topic+" does not exist on broker "+b.set.BrokerName)
	}
	b.offsets.Commit(group, topic, id, offset)
	return ok()
}

func (b *Broker) maxOffset(r *request) answer {
	q, a := b.queueOf(r)
	if q == nil {
		return a
	}
	return offsetAnswer(q.MaxOffset())
}

func (b *Broker) minOffset(r *request) answer {
	q, a := b.queueOf(r)
	if q == nil {
		return a
	}
	return offsetAnswer(q.MinOffset())
}

func (b *Broker) searchOffset(r *request) answer {
	q, a := b.queueOf(r)
	if q == nil {
		return a
	}
	at, isNumber := r.number("timestamp")
	if !isNumber {
		return missingField(r, "timestamp")
	}
	upper := r.text("boundaryType") == "upper" || r.text("boundaryType") == "UPPER"
	return offsetAnswer(q.OffsetByTime(at, upper))
}

func (b *Broker) earliestTime(r *request) answer {
	q, a := b.queueOf(r)
	if q == nil {
		return a
	}
	return answer{ext: map[string]string{"timestamp": itoa(q.EarliestTime())}}
}

// viewMessage gives the record that begins exactly at an offset of the log. Slaves compare histories by it.
func (b *Broker) viewMessage(r *request) answer {
	offset, isNumber := r.number("offset")
	if !isNumber {
		return missingField(r, "offset")
	}
	rec, err := b.store.RecordAt(offset)
	if err != nil {
		return failed(codec.SystemError, "no message begins at offset "+itoa(offset)+" of the log: "+err.Error())
	}
	body := append([]byte(nil), rec.Bytes...)
	rec.Release()
	return answer{body: body}
}

func (b *Broker) allOffsets(*request) answer { return okJSON(b.offsets.Snapshot()) }

func (b *Broker) allDelayOffsets(*request) answer { return okJSON(b.delays.Snapshot()) }
