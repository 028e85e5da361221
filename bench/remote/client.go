package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"tandem/codec"
	"tandem/engine"
)

var (
	// ErrNoMaster says that a name server knows no master.
	ErrNoMaster = errors.New("the name server knows no master")
	// ErrNoPair says that a master and a slave did not come together in time.
	ErrNoPair = errors.New("the slave does not follow the master")
)

// CodeError is a broker's answer that is none of those asked for.
type CodeError struct {
	Addr   string
	What   string // the request, in words
	Code   codec.ResponseCode
	Remark string
}

func (e *CodeError) Error() string {
	text := fmt.Sprintf("%s: %s answered %s (%d)", e.What, e.Addr, codec.CodeName(e.Code), e.Code)
	if e.Remark != "" {
		text += ": " + e.Remark
	}
	return text
}

// Client talks to brokers and name servers.
type Client struct {
	calls   *engine.Client
	timeout time.Duration
}

const defaultTimeout = 3 * time.Second

// New makes a client whose calls end after timeout; 0 is 3 s.
func New(timeout time.Duration, logger *zap.Logger) *Client {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	return &Client{calls: engine.NewClient(engine.ClientOptions{Logger: logger}), timeout: timeout}
}

// Close closes all connections.
func (c *Client) Close() { c.calls.Close() }

// call makes a request and accepts the codes in ok, or only SUCCESS if there are none.
func (c *Client) call(ctx context.Context, addr, what string, req *codec.Command, ok ...codec.ResponseCode) (*codec.Command, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	resp, err := c.calls.Call(ctx, addr, req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if resp.Code != codec.Success && !slices.Contains(ok, resp.Code) {
		return nil, &CodeError{Addr: addr, What: what, Code: resp.Code, Remark: resp.Remark}
	}
	return resp, nil
}

// Masters asks a name server for the addresses of all masters, sorted.
func (c *Client) Masters(ctx context.Context, namesrv string) ([]string, error) {
	resp, err := c.call(ctx, namesrv, "ask who the masters are", codec.NewRequest(codec.ReqGetBrokerClusterInfo, nil, nil))
	if err != nil {
		return nil, err
	}
	var info codec.ClusterInfo
	if err := codec.Unmarshal(resp.Body, &info); err != nil {
		return nil, fmt.Errorf("cluster information of %s: %w", namesrv, err)
	}
	var out []string
	for _, b := range info.BrokerAddrTable {
		if addr, ok := b.BrokerAddrs[0]; ok {
			out = append(out, addr)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNoMaster, namesrv)
	}
	slices.Sort(out)
	return out, nil
}

// CreateTopic makes a topic with so many queues on one broker, or changes it to have them.
func (c *Client) CreateTopic(ctx context.Context, addr, topic string, queues int) error {
	n := strconv.Itoa(queues)
	_, err := c.call(ctx, addr, "create topic "+topic, codec.NewRequest(codec.ReqUpdateAndCreateTopic, map[string]string{
		"topic": topic, "defaultTopic": "TBW102", "readQueueNums": n, "writeQueueNums": n, "perm": "6",
		"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
	}, nil))
	return err
}

// LogRange is the range of the commit log that a broker holds, from its runtime information.
type LogRange struct{ Min, Max int64 }

// LogRange asks a broker, master or slave, how far its commit log goes.
func (c *Client) LogRange(ctx context.Context, addr string) (LogRange, error) {
	const what = "ask for the log's range"
	resp, err := c.call(ctx, addr, what, codec.NewRequest(codec.ReqGetBrokerRuntimeInfo, nil, nil))
	if err != nil {
		return LogRange{}, err
	}
	var info codec.KVTable
	if err := codec.Unmarshal(resp.Body, &info); err != nil {
		return LogRange{}, fmt.Errorf("runtime information of %s: %w", addr, err)
	}
	lo, err1 := strconv.ParseInt(info.Table["commitLogMinOffset"], 10, 64)
	hi, err2 := strconv.ParseInt(info.Table["commitLogMaxOffset"], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return LogRange{}, fmt.Errorf("runtime information of %s: %w", addr, err)
	}
	return LogRange{lo, hi}, nil
}

// WaitLevel waits until the log of follower ends where leader's does, looking every few milliseconds.
func (c *Client) WaitLevel(ctx context.Context, leader, follower string) error {
	return Poll(ctx, 10*time.Millisecond, func() (bool, error) {
		want, err := c.LogRange(ctx, leader)
		if err != nil {
			return false, err
		}
		have, err := c.LogRange(ctx, follower)
		if err != nil {
			return false, err
		}
		if have.Max != want.Max {
			return false, fmt.Errorf("the log of %s ends at %d, that of %s at %d", follower, have.Max, leader, want.Max)
		}
		return true, nil
	})
}

// Poll calls check until it says true, every so often, at once for the first time. If the context ends before, its error
// comes with check's last one.
func Poll(ctx context.Context, every time.Duration, check func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		done, err := check()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// WaitPair waits until a slave follows its master: a message is acknowledged as asked for, and both logs end alike.
func (c *Client) WaitPair(ctx context.Context, master, slave string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("%w: master %s, slave %s", ErrNoPair, master, slave))
	defer cancel()
	err := Poll(ctx, 50*time.Millisecond, func() (bool, error) {
		sent, err := c.Send(ctx, master, Message{Topic: "TandemPair", Body: []byte("is a slave there?")})
		if err == nil && sent.Code != codec.Success {
			err = &CodeError{Addr: master, What: "send", Code: sent.Code}
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	return c.WaitLevel(ctx, master, slave)
}
