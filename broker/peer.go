package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"go.uber.org/zap"

	"tandem/broker/settings"
	"tandem/codec"
	"tandem/transfer"
)

// refusal is another broker's or a name server's answer other than success.
type refusal struct {
	what   string
	code   codec.ResponseCode
	remark string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s: answered %d (%s) %s", r.what, r.code, codec.CodeName(r.code), r.remark)
}

// masterPeer is a slave's way to its master: where it is, and what it says. Settings win over what the name servers tell.
// Any goroutine may call it.
type masterPeer struct {
	b      *Broker
	mu     sync.Mutex
	master string // remoting address, as the name servers told
	ha     string // HA address, as the name servers told
	fits   string // remoting address of the broker that check found to fit; what is fetched besides the log comes from there alone
}

func newMasterPeer(b *Broker) *masterPeer { return &masterPeer{b: b} }

// places is where the master's log and its remoting port are, as set or else as told; "" where neither is known. Needs mu.
func (p *masterPeer) places() (ha, master string) {
	return cmp.Or(p.b.set.HaMasterAddress, p.ha), cmp.Or(p.b.set.MasterAddr, p.master)
}

// learn takes a name server's word. An empty word changes nothing: the master may be gone for a moment only. If it changes where the master
// is, that one is followed at once, after the same checks as the first.
func (p *masterPeer) learn(master, ha string) {
	p.mu.Lock()
	oldHA, oldMaster := p.places()
	p.master, p.ha = cmp.Or(master, p.master), cmp.Or(ha, p.ha)
	newHA, newMaster := p.places()
	changed := newHA != oldHA || newMaster != oldMaster
	if changed {
		p.fits = ""
	}
	p.mu.Unlock()
	if !changed {
		return
	}
	p.b.log.Info("the name servers know the master", zap.String("master", newMaster), zap.String("ha", newHA))
	if s := p.b.slave.Load(); s != nil {
		s.MasterChanged()
	}
}

// checked is the remoting address of the master that fits, "" before it was checked.
func (p *masterPeer) checked() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fits
}

func (p *masterPeer) known() bool {
	_, err := p.HAAddr(context.Background())
	return err == nil
}

// HAAddr is where the log comes from.
func (p *masterPeer) HAAddr(context.Context) (string, error) {
	p.mu.Lock()
	ha, _ := p.places()
	p.mu.Unlock()
	if ha == "" {
		return "", fmt.Errorf("%w: no name server (namesrvAddr=%s) knows a master of brokerName=%s, and haMasterAddress is not set",
			transfer.ErrNoMaster, p.b.set.NamesrvAddr, p.b.set.BrokerName)
	}
	return ha, nil
}

// remoting is where the master answers requests.
func (p *masterPeer) remoting() (string, error) {
	p.mu.Lock()
	_, master := p.places()
	p.mu.Unlock()
	if master == "" {
		return "", fmt.Errorf("%w: its remoting address is not known; set masterAddr, or namesrvAddr", transfer.ErrNoMaster)
	}
	return master, nil
}

// call asks the master; an answer other than success is a *refusal.
func (p *masterPeer) call(ctx context.Context, code codec.RequestCode, ext map[string]string) (*codec.Command, error) {
	addr, err := p.remoting()
	if err != nil {
		return nil, err
	}
	return p.callAt(ctx, addr, code, ext)
}

func (p *masterPeer) callAt(ctx context.Context, addr string, code codec.RequestCode, ext map[string]string) (*codec.Command, error) {
	resp, err := p.b.outbound.Call(ctx, addr, codec.NewRequest(code, ext, nil))
	if err != nil {
		return nil, err
	}
	if resp.Code != codec.Success {
		return nil, &refusal{what: "master " + addr + ", request " + strconv.Itoa(int(code)), code: resp.Code, remark: resp.Remark}
	}
	return resp, nil
}

// Hello says who this slave is and which HA connection is its own.
func (p *masterPeer) Hello(ctx context.Context, haLocal netip.AddrPort) error {
	return p.hello(ctx, map[string]string{"identity": p.b.identity(), "haLocal": haLocal.String()})
}

// Refuse says why this slave does not follow.
func (p *masterPeer) Refuse(ctx context.Context, haLocal netip.AddrPort, reason string) error {
	return p.hello(ctx, map[string]string{"identity": p.b.identity(), "haLocal": haLocal.String(), "refused": reason})
}

func (p *masterPeer) hello(ctx context.Context, ext map[string]string) error {
	_, err := p.call(ctx, codec.ReqTandemHello, ext)
	if r, refused := err.(*refusal); refused && r.code == codec.RequestCodeNotSupported {
		return transfer.ErrNotSupported
	}
	return err
}

// Range is the part of the log the master holds. It fails if the broker asked cannot be this slave's master.
func (p *masterPeer) Range(ctx context.Context) (lowest, end int64, err error) {
	if err := p.check(ctx); err != nil {
		return 0, 0, err
	}
	resp, err := p.call(ctx, codec.ReqGetBrokerRuntimeInfo, nil)
	if err != nil {
		return 0, 0, err
	}
	var info codec.KVTable
	if err := codec.Unmarshal(resp.Body, &info); err != nil {
		return 0, 0, fmt.Errorf("the master's runtime info: %w", err)
	}
	for _, f := range []struct {
		key string
		to  *int64
	}{{"commitLogMinOffset", &lowest}, {"commitLogMaxOffset", &end}} {
		if *f.to, err = strconv.ParseInt(info.Table[f.key], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("the master's runtime info: %s=%q is not a number", f.key, info.Table[f.key])
		}
	}
	return lowest, end, nil
}

// ErrNotTheMaster means that a slave asked a broker that cannot be its master.
var ErrNotTheMaster = errors.New("not this slave's master")

// check compares what master and slave must agree on: the name, and the size of the segments, by which log files are cut.
func (p *masterPeer) check(ctx context.Context) error {
	addr, err := p.remoting()
	if err != nil {
		return err
	}
	p.setFits("")
	resp, err := p.callAt(ctx, addr, codec.ReqGetBrokerConfig, nil)
	if err != nil {
		return err
	}
	theirs := map[string]string{}
	for line := range strings.Lines(string(resp.Body)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			theirs[key] = value
		}
	}
	for key, ours := range map[string]string{
		"brokerName":              p.b.set.BrokerName,
		"mappedFileSizeCommitLog": strconv.FormatInt(p.b.set.MappedFileSizeCommitLog, 10),
	} {
		if got, known := theirs[key]; known && got != ours {
			return fmt.Errorf("%w: the broker at %s has %s=%s, this slave has %s; they must be the same", ErrNotTheMaster, addr, key, got, ours)
		}
	}
	if theirs["brokerRole"] == string(settings.Slave) {
		return fmt.Errorf("%w: the broker at %s has brokerRole=SLAVE; correct masterAddr or haMasterAddress", ErrNotTheMaster, addr)
	}
	p.setFits(addr)
	return nil
}

func (p *masterPeer) setFits(addr string) {
	p.mu.Lock()
	p.fits = addr
	p.mu.Unlock()
}

// Record is the master's record at an offset.
func (p *masterPeer) Record(ctx context.Context, offset int64) ([]byte, error) {
	resp, err := p.call(ctx, codec.ReqViewMessageByID, map[string]string{"offset": strconv.FormatInt(offset, 10)})
	if r, refused := err.(*refusal); refused && r.code == codec.SystemError {
		return nil, fmt.Errorf("%w: %w", transfer.ErrNoRecord, err)
	}
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// hello takes a slave's word about which HA connection is its own, or why it does not follow.
func (b *Broker) hello(r *request) answer {
	m := b.master.Load()
	if m == nil {
		return failed(codec.ServiceNotAvailable, "broker "+b.set.BrokerName+" is not a master")
	}
	local, err := netip.ParseAddrPort(r.text("haLocal"))
	if err != nil {
		return missingField(r, "haLocal")
	}
	if r.text("identity") == "" {
		return missingField(r, "identity")
	}
	if reason := r.text("refused"); reason != "" {
		err = m.Refused(local, r.text("identity"), reason)
	} else {
		err = m.Identify(local, r.text("identity"))
	}
	if err != nil {
		return failed(codec.InvalidParameter, err.Error())
	}
	return ok()
}
