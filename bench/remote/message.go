package remote

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"tandem/codec"
)

// Message is one message to be sent.
type Message struct {
	Topic  string
	Queue  int
	Queues int // of the topic, if this message makes it; 0 is 4
	NoWait bool
	Body   []byte
}

// Place is where a broker put a message.
type Place struct {
	Queue  int
	Offset int64 // number in the queue
}

// Sent is a broker's answer to a message.
type Sent struct {
	Code codec.ResponseCode // SUCCESS, or one of the three that mean "stored, but"
	Place
}

// Send sends one message. FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE and FLUSH_SLAVE_TIMEOUT are no errors: the message is stored,
// but not as safely as asked for. Other codes are a CodeError: it is not stored.
func (c *Client) Send(ctx context.Context, addr string, m Message) (Sent, error) {
	queues := m.Queues
	if queues == 0 {
		queues = 4
	}
	props := codec.AppendProperty(nil, "WAIT", strconv.FormatBool(!m.NoWait))
	req := codec.NewRequest(codec.ReqSendMessageV2, map[string]string{
		"a": "tandem_tools", "b": m.Topic, "c": "TBW102", "d": strconv.Itoa(queues), "e": strconv.Itoa(m.Queue), "f": "0",
		"g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "i": string(props), "j": "0", "k": "false", "l": "0", "m": "false",
	}, m.Body)
	resp, err := c.call(ctx, addr, "send to "+m.Topic, req, codec.FlushDiskTimeout, codec.SlaveNotAvailable, codec.FlushSlaveTimeout)
	if err != nil {
		return Sent{}, err
	}
	queue, err := strconv.Atoi(resp.Ext["queueId"])
	if err != nil {
		return Sent{}, fmt.Errorf("send to %s: answer of %s: %w", m.Topic, addr, err)
	}
	offset, err := strconv.ParseInt(resp.Ext["queueOffset"], 10, 64)
	if err != nil {
		return Sent{}, fmt.Errorf("send to %s: answer of %s: %w", m.Topic, addr, err)
	}
	return Sent{Code: resp.Code, Place: Place{queue, offset}}, nil
}

// Pull names what to pull.
type Pull struct {
	Group, Topic string
	Queue        int
	Offset       int64 // number of the first message wanted
	Max          int   // messages; 0 is 32
}

// Pulled is a broker's answer to a pull.
type Pulled struct {
	Code     codec.ResponseCode // SUCCESS, PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY or PULL_OFFSET_MOVED
	Next     int64              // where to go on
	Min, Max int64              // what the queue holds
	Records  []codec.Record     // checked; their slices are the caller's
}

// Pull asks once, and does not wait for messages to come.
func (c *Client) Pull(ctx context.Context, addr string, p Pull) (Pulled, error) {
	most := p.Max
	if most == 0 {
		most = 32
	}
	const subscriptionInRequest = 0x4
	req := codec.NewRequest(codec.ReqPullMessage, map[string]string{
		"consumerGroup": p.Group, "topic": p.Topic, "queueId": strconv.Itoa(p.Queue), "queueOffset": strconv.FormatInt(p.Offset, 10),
		"maxMsgNums": strconv.Itoa(most), "sysFlag": strconv.Itoa(subscriptionInRequest), "commitOffset": "0",
		"suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*", "expressionType": "TAG",
	}, nil)
	what := fmt.Sprintf("pull %s/%d from %d", p.Topic, p.Queue, p.Offset)
	resp, err := c.call(ctx, addr, what, req, codec.PullNotFound, codec.PullRetryImmediately, codec.PullOffsetMoved)
	if err != nil {
		return Pulled{}, err
	}
	out := Pulled{Code: resp.Code}
	for _, f := range []struct {
		name string
		to   *int64
	}{{"nextBeginOffset", &out.Next}, {"minOffset", &out.Min}, {"maxOffset", &out.Max}} {
		if *f.to, err = strconv.ParseInt(resp.Ext[f.name], 10, 64); err != nil {
			return Pulled{}, fmt.Errorf("%s: %s of %s: %w", what, f.name, addr, err)
		}
	}
	if resp.Code == codec.Success {
		out.Records, err = records(resp.Body)
	}
	if err != nil {
		return Pulled{}, fmt.Errorf("%s: body of %s: %w", what, addr, err)
	}
	return out, nil
}

func records(body []byte) ([]codec.Record, error) {
	var out []codec.Record
	for len(body) > 0 {
		var r codec.Record
		n, err := r.Decode(body)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
		body = body[n:]
	}
	return out, nil
}

// Commit tells a broker how far a group has consumed a queue: offset is the next message's number.
func (c *Client) Commit(ctx context.Context, addr, group, topic string, queue int, offset int64) error {
	_, err := c.call(ctx, addr, "commit an offset of "+group, codec.NewRequest(codec.ReqUpdateConsumerOffset, map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(queue), "commitOffset": strconv.FormatInt(offset, 10),
	}, nil))
	return err
}
