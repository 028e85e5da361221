package broker

import (
	"context"
	"net"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"tandem/broker/tables"
	"tandem/codec"
)

// registrar keeps the broker registered, with all its topics, at every name server: at the start, on each change and periodically, over
// one long connection each. Each name server has its own goroutine, so that one which is down or hangs delays nobody.
type registrar struct {
	b       *Broker
	changes []chan struct{} // one slot for each name server
	servers []string
	stop    context.CancelFunc
	ctx     context.Context
	wg      sync.WaitGroup
}

func newRegistrar(b *Broker) *registrar {
	r := &registrar{b: b, servers: b.set.NameServers()}
	r.ctx, r.stop = context.WithCancel(context.Background())
	for range r.servers {
		r.changes = append(r.changes, make(chan struct{}, 1))
	}
	return r
}

func (r *registrar) start() {
	if len(r.servers) == 0 {
		r.b.log.Warn("namesrvAddr is empty: no client will find this broker by name")
	}
	for i, addr := range r.servers {
		r.wg.Add(1)
		go func() { defer r.wg.Done(); r.keep(addr, r.changes[i]) }()
	}
}

// changed asks for a registration at once. Any goroutine; never blocks.
func (r *registrar) changed() {
	for _, c := range r.changes {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (r *registrar) close() {
	r.stop()
	r.wg.Wait()
}

const (
	registerRetry  = 2 * time.Second // after a failure, and for a slave that knows no master
	unregisterWait = time.Second
)

// keep registers at one name server until the end.
func (r *registrar) keep(addr string, changed <-chan struct{}) {
	failing := false
	for {
		err := r.register(addr)
		if r.ctx.Err() != nil {
			return
		}
		switch {
		case err != nil && !failing:
			r.b.log.Warn("name server not reached, trying again until it is", zap.String("namesrv", addr), zap.Error(err))
		case err == nil && failing:
			r.b.log.Info("registered at the name server again", zap.String("namesrv", addr))
		}
		failing = err != nil
		select {
		case <-r.ctx.Done():
			return
		case <-changed:
		case <-time.After(r.pause(failing)):
		}
	}
}

func (r *registrar) pause(failing bool) time.Duration {
	if failing || r.b.isSlave() && !r.b.peer.known() {
		return registerRetry
	}
	return r.b.set.RegisterNameServerPeriod.Duration()
}

// register tells one name server all topics, and hears from it who the master is.
func (r *registrar) register(addr string) error {
	b := r.b
	body, err := codec.Marshal(codec.RegisterBrokerBody{FilterServerList: []string{}, TopicConfigSerializeWrapper: b.registeredTopics().WithMapping()})
	if err != nil {
		return err
	}
	req := codec.NewRequest(codec.ReqRegisterBroker, map[string]string{
		"brokerName":   b.set.BrokerName,
		"brokerAddr":   b.host.String(),
		"clusterName":  b.set.BrokerClusterName,
		"haServerAddr": b.haServerAddr(),
		"brokerId":     strconv.FormatInt(b.set.BrokerID, 10),
		"compressed":   "false",
		"bodyCrc32":    strconv.FormatInt(int64(codec.BodyCRC(body)), 10),
	}, body)
	ctx, cancel := context.WithTimeout(r.ctx, b.set.RegisterBrokerTimeoutMills.Duration())
	defer cancel()
	resp, err := b.outbound.Call(ctx, addr, req)
	if err != nil {
		return err
	}
	if resp.Code != codec.Success {
		return &refusal{what: "registering at name server " + addr, code: resp.Code, remark: resp.Remark}
	}
	if b.isSlave() {
		b.peer.learn(resp.Ext["masterAddr"], resp.Ext["haServerAddr"])
	}
	return nil
}

// registeredTopics is the topic table as the name servers see it: with no more permission than the broker has, and without the
// model for new topics where sends may not create any.
func (b *Broker) registeredTopics() codec.TopicConfigs {
	all := b.topics.Snapshot()
	if !b.set.AutoCreateTopicEnable {
		delete(all.TopicConfigTable, tables.DefaultTopic)
	}
	if perm := int32(b.set.BrokerPermission); perm&6 != 6 {
		for name, cfg := range all.TopicConfigTable {
			cfg.Perm &= perm
			all.TopicConfigTable[name] = cfg
		}
	}
	return all
}

// haServerAddr is what slaves are told: brokerIP2 and the port the replication listens on.
func (b *Broker) haServerAddr() string {
	port := b.set.HaListenPort
	if m := b.master.Load(); m != nil {
		port = int32(m.Addr().Port())
	}
	return net.JoinHostPort(b.set.BrokerIP2, strconv.Itoa(int(port)))
}

// unregister tells all name servers that the broker goes, without waiting long for any.
func (r *registrar) unregister(ctx context.Context) {
	r.close()
	ctx, cancel := context.WithTimeout(ctx, unregisterWait)
	defer cancel()
	var wg sync.WaitGroup
	for _, addr := range r.servers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			req := codec.NewRequest(codec.ReqUnregisterBroker, map[string]string{
				"brokerName": r.b.set.BrokerName, "brokerAddr": r.b.host.String(), "clusterName": r.b.set.BrokerClusterName,
				"brokerId": strconv.FormatInt(r.b.set.BrokerID, 10),
			}, nil)
			if _, err := r.b.outbound.Call(ctx, addr, req); err != nil {
				r.b.log.Info("name server not told that the broker goes; it will notice", zap.String("namesrv", addr), zap.Error(err))
			}
		}()
	}
	wg.Wait()
}
