package remote

import (
	"context"
	"fmt"

	"tandem/codec"
)

// Replication is how far a master's log goes, and how much of it each of its slaves has acknowledged.
type Replication struct {
	End    int64
	Slaves []Acknowledged
}

// Acknowledged is one slave's state.
type Acknowledged struct {
	Offset   int64 `json:"acked"`
	Reported bool  `json:"reported"` // Offset comes of the slave
	InSync   bool  `json:"inSync"`
}

// AppendTimes are how long a broker's log was held for each of its appends, since the broker's start. The JSON names are stable.
type AppendTimes struct {
	Count  int64 `json:"count"` // appends of one or more messages each
	P50Ns  int64 `json:"p50Ns"`
	P99Ns  int64 `json:"p99Ns"`
	P999Ns int64 `json:"p999Ns"`
	// P9999Ns is the 99.99th percentile.
	P9999Ns int64 `json:"p9999Ns"`
	MaxNs   int64 `json:"maxNs"`
}

// status is what is used of a broker's answer.
type status struct {
	Master *struct {
		MaxOffset int64          `json:"maxOffset"`
		Slaves    []Acknowledged `json:"slaves"`
	} `json:"master"`
	AppendTimes *AppendTimes `json:"appendTimes"`
}

func (c *Client) status(ctx context.Context, addr string) (s status, err error) {
	resp, err := c.call(ctx, addr, "ask for the status", codec.NewRequest(codec.ReqTandemStatus, nil, nil))
	if err != nil {
		return s, err
	}
	if err := codec.Unmarshal(resp.Body, &s); err != nil {
		return s, fmt.Errorf("status of %s: %w", addr, err)
	}
	return s, nil
}

// AppendTimes asks a broker of ours; nil if it does not measure them.
func (c *Client) AppendTimes(ctx context.Context, addr string) (*AppendTimes, error) {
	s, err := c.status(ctx, addr)
	return s.AppendTimes, err
}

// Replication asks a master of ours.
func (c *Client) Replication(ctx context.Context, addr string) (Replication, error) {
	status, err := c.status(ctx, addr)
	if err != nil {
		return Replication{}, err
	}
	if status.Master == nil {
		return Replication{}, fmt.Errorf("status of %s: it is no master", addr)
	}
	return Replication{End: status.Master.MaxOffset, Slaves: status.Master.Slaves}, nil
}
