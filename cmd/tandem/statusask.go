package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tandem/broker"
	"tandem/codec"
	"tandem/engine"
	"tandem/transfer"
)

const askTimeout = 3 * time.Second

// brokerReport is what is known of one broker: what a tandem broker answers to ReqTandemStatus, or what an Apache broker can tell.
type brokerReport struct {
	broker.Status        // Addr is where it was asked
	Software      string `json:"software"`        // tandem or Apache RocketMQ
	Error         string `json:"error,omitempty"` // why nothing else is known
}

// asker asks brokers and name servers.
type asker struct{ client *engine.Client }

// all asks each broker the options name, at the same time, and keeps their order.
func (a asker) all(ctx context.Context, o statusOptions) ([]brokerReport, error) {
	addrs := o.addrs()
	if o.namesrv != "" {
		var err error
		if addrs, err = a.brokers(ctx, addrs); err != nil {
			return nil, err
		}
	}
	reports := make([]brokerReport, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() { reports[i] = a.report(ctx, addr) })
	}
	wg.Wait()
	return reports, nil
}

// brokers lists the addresses of all brokers the first name server to answer knows: by name, the master first.
func (a asker) brokers(ctx context.Context, nameServers []string) ([]string, error) {
	var faults []error
	for _, ns := range nameServers {
		var info codec.ClusterInfo
		if err := a.ask(ctx, ns, codec.ReqGetBrokerClusterInfo, &info); err != nil {
			faults = append(faults, fmt.Errorf("name server %s: %w", ns, err))
			continue
		}
		var addrs []string
		for _, name := range sortedKeys(info.BrokerAddrTable) {
			byID := info.BrokerAddrTable[name].BrokerAddrs
			for _, id := range sortedKeys(byID) {
				addrs = append(addrs, byID[id])
			}
		}
		return addrs, nil
	}
	return nil, errors.Join(faults...)
}

func (a asker) report(ctx context.Context, addr string) brokerReport {
	r, err := a.tandem(ctx, addr)
	if errors.Is(err, errNotSupported) {
		r, err = a.apache(ctx, addr)
	}
	if err != nil {
		r = brokerReport{Error: fmt.Sprintf("broker %s: %v", addr, err)}
	}
	r.Addr = addr
	return r
}

func (a asker) tandem(ctx context.Context, addr string) (brokerReport, error) {
	r := brokerReport{Software: "tandem"}
	err := a.ask(ctx, addr, codec.ReqTandemStatus, &r.Status)
	return r, err
}

// apache puts a report together from the broker's configuration (26), its runtime information (28) and, from 5.x on, its view of
// the replication (907).
func (a asker) apache(ctx context.Context, addr string) (brokerReport, error) {
	r := brokerReport{Software: "Apache RocketMQ"}
	body, err := a.call(ctx, addr, codec.ReqGetBrokerConfig)
	if err != nil {
		return r, err
	}
	r.fromConfig(properties(body))
	var runtime codec.KVTable
	if err := a.ask(ctx, addr, codec.ReqGetBrokerRuntimeInfo, &runtime); err != nil {
		return r, err
	}
	r.MinOffset = max(number(runtime.Table["commitLogMinOffset"]), 0) // -1 for an empty log
	r.MaxOffset = number(runtime.Table["commitLogMaxOffset"])
	var ha codec.BrokerHAStatus
	switch err := a.ask(ctx, addr, codec.ReqGetBrokerHAStatus, &ha); {
	case errors.Is(err, errNotSupported): // 4.9 can't tell
	case err != nil:
		return r, err
	default:
		r.fromHA(&ha)
	}
	return r, nil
}

func (r *brokerReport) fromConfig(c map[string]string) {
	r.Role, r.Cluster, r.BrokerName, r.BrokerID = c["brokerRole"], c["brokerClusterName"], c["brokerName"], number(c["brokerId"])
	if r.Role == "SLAVE" {
		r.Rule = "takes no sends"
		return
	}
	r.Master = &transfer.MasterStatus{MaxOffset: r.MaxOffset}
	replicas, modern := c["inSyncReplicas"] // 4.9 has no such setting and waits for one slave
	switch {
	case r.Role != "SYNC_MASTER":
		r.Rule = "waits for no slave"
	case !modern:
		r.Rule, r.Master.Need = "SYNC_MASTER of 4.9: waits for one slave", 1
	case number(replicas) <= 1:
		r.Rule = "SYNC_MASTER with inSyncReplicas=" + replicas + ": waits for NO slave"
	default:
		r.Master.Need = int(number(replicas)) - 1
		r.Rule = fmt.Sprintf("SYNC_MASTER with inSyncReplicas=%s: waits for %d slave(s)", replicas, r.Master.Need)
	}
}

func (r *brokerReport) fromHA(ha *codec.BrokerHAStatus) {
	if c := ha.HAClientRuntimeInfo; c != nil && r.Master == nil {
		r.Slave = &transfer.SlaveStatus{State: transfer.Connecting, MasterAddr: c.MasterAddr, MaxOffset: c.MaxOffset, LastReadMs: c.LastReadTimestamp}
		if c.LastReadTimestamp > 0 {
			r.Slave.State = transfer.Transfer
		}
	}
	if r.Master == nil {
		return
	}
	for _, c := range ha.HAConnectionInfo {
		state := "CatchingUp"
		if c.InSync {
			state = "InSync"
			r.Master.Usable++
		}
		r.Master.Slaves = append(r.Master.Slaves, transfer.SlaveInfo{Addr: c.Addr, State: state, Acked: c.SlaveAckOffset, Reported: true,
			LagBytes: max(c.Diff, 0), Sent: c.TransferFromWhere, BytesPerSec: c.TransferredByteInSecond, InSync: c.InSync})
	}
}

// errNotSupported: the broker does not know the request.
var errNotSupported = errors.New("request not supported")

// ask calls and reads the answer's body into v.
func (a asker) ask(ctx context.Context, addr string, code codec.RequestCode, v any) error {
	body, err := a.call(ctx, addr, code)
	if err != nil {
		return err
	}
	if err := codec.Unmarshal(body, v); err != nil {
		return fmt.Errorf("answer to request %d: %w", code, err)
	}
	return nil
}

func (a asker) call(ctx context.Context, addr string, code codec.RequestCode) ([]byte, error) {
	answer, err := a.client.Call(ctx, addr, codec.NewRequest(code, nil, nil))
	switch {
	case err != nil:
		return nil, err
	case answer.Code == codec.RequestCodeNotSupported:
		return nil, fmt.Errorf("%w: %d", errNotSupported, code)
	case answer.Code != codec.Success:
		return nil, fmt.Errorf("request %d is answered %s: %s", code, codec.CodeName(answer.Code), answer.Remark)
	default:
		return answer.Body, nil
	}
}

// properties reads the key=value lines of a broker's configuration.
func properties(text []byte) map[string]string {
	table := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			table[key] = value
		}
	}
	return table
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // an absent one is 0
	return n
}

func sortedKeys[K ~int64 | ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
