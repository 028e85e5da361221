package bench

import (
	"context"
	"errors"

	"tandem/bench/remote"
	"tandem/codec"
)

// prepare finds the brokers and sees that each has the topic and takes a message for its last queue.
func prepare(ctx context.Context, o SendOptions) ([]string, error) {
	c := remote.New(0, nil)
	defer c.Close()
	addrs := []string{o.Addr}
	if o.Namesrv != "" {
		var err error
		if addrs, err = c.Masters(ctx, o.Namesrv); err != nil {
			return nil, err
		}
	}
	for _, addr := range addrs {
		if err := prepareTopic(ctx, c, addr, o); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// prepareTopic tries a message, which makes the topic if the broker creates topics by itself. If it is refused because of
// the topic or the queue, the topic is made (or made wider) by the admin request.
func prepareTopic(ctx context.Context, c *remote.Client, addr string, o SendOptions) error {
	try := remote.Message{Topic: o.Topic, Queue: o.Queues - 1, Queues: o.Queues, NoWait: true, Body: []byte("is the topic there?")}
	_, err := c.Send(ctx, addr, try)
	var refused *remote.CodeError
	if !errors.As(err, &refused) || !aboutTopic(refused.Code) {
		return err
	}
	if err := c.CreateTopic(ctx, addr, o.Topic, o.Queues); err != nil {
		return err
	}
	_, err = c.Send(ctx, addr, try)
	return err
}

// aboutTopic tells whether a send may be refused with code because the topic or the queue does not exist: 4.9 answers
// SYSTEM_ERROR to a queue that is out of range, 5.x INVALID_PARAMETER.
func aboutTopic(code codec.ResponseCode) bool {
	return code == codec.TopicNotExist || code == codec.InvalidParameter || code == codec.SystemError
}
