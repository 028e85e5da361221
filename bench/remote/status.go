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

// Replication asks a master of ours.
func (c *Client) Replication(ctx context.Context, addr string) (Replication, error) {
	resp, err := c.call(ctx, addr, "ask how far the slaves are", codec.NewRequest(codec.ReqTandemStatus, nil, nil))
	if err != nil {
		return Replication{}, err
	}
	var status struct {
		Master *struct {
			MaxOffset int64          `json:"maxOffset"`
			Slaves    []Acknowledged `json:"slaves"`
		} `json:"master"`
	}
	if err := codec.Unmarshal(resp.Body, &status); err != nil {
		return Replication{}, fmt.Errorf("status of %s: %w", addr, err)
	}
	if status.Master == nil {
		return Replication{}, fmt.Errorf("status of %s: it is no master", addr)
	}
	return Replication{End: status.Master.MaxOffset, Slaves: status.Master.Slaves}, nil
}
