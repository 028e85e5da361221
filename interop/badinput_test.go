package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/cluster"
	"tandem/codec"
)

func TestBadRequestsAreAnsweredClearly(t *testing.T) {
	s, master, slave, book := pair(t)
	end := s.wire.logEnd(master.addr)

	cases := []struct {
		name  string
		ask   func() (codec.ResponseCode, string, error)
		codes []codec.ResponseCode
	}{
		{"unknown request code at the master", s.asking(master.addr, 7777, nil), []codec.ResponseCode{codec.RequestCodeNotSupported}},
		{"unknown request code at the slave", s.asking(slave.addr, 7777, nil), []codec.ResponseCode{codec.RequestCodeNotSupported}},
		{"unknown request code at the name server", s.asking(s.namesrv, 7777, nil), []codec.ResponseCode{codec.RequestCodeNotSupported}},
		{"illegal character in a topic", s.sending(master.addr, message{Topic: "no spaces!", Body: []byte("x")}), []codec.ResponseCode{codec.InvalidParameter, codec.MessageIllegal}},
		{"empty topic", s.sending(master.addr, message{Topic: "", Body: []byte("x")}), []codec.ResponseCode{codec.InvalidParameter, codec.MessageIllegal, codec.SystemError}},
		{"topic of 200 characters", s.sending(master.addr, message{Topic: strings.Repeat("t", 200), Body: []byte("x")}), []codec.ResponseCode{codec.InvalidParameter, codec.MessageIllegal}},
		{"reserved topic", s.sending(master.addr, message{Topic: "SCHEDULE_TOPIC_XXXX", Body: []byte("x")}), []codec.ResponseCode{codec.NoPermission}},
		{"body above the limit", s.sending(master.addr, message{Topic: topic, Body: make([]byte, 5<<20)}), []codec.ResponseCode{codec.MessageIllegal}},
		{"properties above the limit", s.sending(master.addr, message{Topic: topic, Tags: strings.Repeat("t", 40000), Body: []byte("x")}), []codec.ResponseCode{codec.MessageIllegal}},
		{"queue that the topic does not have", s.sending(master.addr, message{Topic: topic, Queue: 99, Body: []byte("x")}), []codec.ResponseCode{codec.InvalidParameter, codec.SystemError}},
		{"write to a slave", s.sending(slave.addr, message{Topic: topic, Body: []byte("x")}), []codec.ResponseCode{codec.ServiceNotAvailable, codec.SystemBusy}},
		{"pull of a missing topic", s.pulling(master.addr, "NoSuchTopic", 0), []codec.ResponseCode{codec.TopicNotExist}},
		{"pull of a missing queue", s.pulling(master.addr, topic, 99), []codec.ResponseCode{codec.InvalidParameter, codec.SystemError}},
		{"route of a missing topic", s.asking(s.namesrv, codec.ReqGetRouteInfoByTopic, map[string]string{"topic": "NoSuchTopic"}), []codec.ResponseCode{codec.TopicNotExist}},
		{"send without any field", s.asking(master.addr, codec.ReqSendMessageV2, map[string]string{}), []codec.ResponseCode{codec.SystemError, codec.MessageIllegal, codec.InvalidParameter}},
		{"number that is none", s.asking(master.addr, codec.ReqGetMaxOffset, map[string]string{"topic": topic, "queueId": "many"}), []codec.ResponseCode{codec.SystemError, codec.InvalidParameter}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, remark, err := c.ask()
			require.NoError(t, err, "it must be answered, not cut off")
			require.Contains(t, c.codes, code, "%s: %s", codec.CodeName(code), remark)
			require.NotEmpty(t, remark, "the answer says why")
		})
	}
	require.Equal(t, end, s.wire.logEnd(master.addr), "nothing of it was stored")
	got := book.send(s.wire, master.addr, message{Topic: topic, ID: "after", Body: []byte("after")})
	require.NoError(t, got.Err)
	require.Equal(t, codec.Success, got.Code, "the broker goes on: %v", got)
}

func TestMissingTopicIsRefusedWithoutAutoCreation(t *testing.T) {
	s := newSite(t, ours())
	master := s.master(ours(), "ASYNC_MASTER", cluster.Conf{"autoCreateTopicEnable": "false"})
	got := s.wire.send(master.addr, message{Topic: "NoSuchTopic", ID: "x", Body: []byte("x")})
	require.NoError(t, got.Err)
	require.Equal(t, codec.TopicNotExist, got.Code, "%v", got)
}

func (s *site) asking(addr string, code codec.RequestCode, ext map[string]string) func() (codec.ResponseCode, string, error) {
	return func() (codec.ResponseCode, string, error) {
		resp, err := s.wire.call(addr, code, ext, nil)
		if err != nil {
			return 0, "", err
		}
		return resp.Code, resp.Remark, nil
	}
}

func (s *site) sending(addr string, m message) func() (codec.ResponseCode, string, error) {
	return func() (codec.ResponseCode, string, error) {
		got := s.wire.send(addr, m)
		return got.Code, got.Remark, got.Err
	}
}

func (s *site) pulling(addr, topic string, queue int) func() (codec.ResponseCode, string, error) {
	return func() (codec.ResponseCode, string, error) {
		p, err := s.wire.pull(addr, "bad-reader", topic, queue, 0, 0)
		return p.Code, p.Remark, err
	}
}

// TestGarbageOnAnyPortHurtsNobody writes nonsense to each port of a pair and its name server. Each such connection may be closed; the
// pair goes on, and bytes on the replication port are never taken for a slave.
func TestGarbageOnAnyPortHurtsNobody(t *testing.T) {
	s := newSite(t, ours())
	master := s.master(ours(), "SYNC_MASTER")
	s.wire.createTopic(t, master.addr, topic, queues)
	book := newLedger()

	huge := binary.BigEndian.AppendUint32(nil, 1<<30)
	tiny := binary.BigEndian.AppendUint32(nil, 1)
	lying := append(binary.BigEndian.AppendUint32(nil, 20), 0, 0xff, 0xff, 0xff)
	garbage := map[string][]byte{
		"ones":             bytes.Repeat([]byte{0xff}, 8),
		"many ones":        bytes.Repeat([]byte{0xff}, 64<<10),
		"zeros":            make([]byte, 4096),
		"text":             []byte("GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
		"seven bytes":      []byte("1234567"),
		"greatest offset":  binary.BigEndian.AppendUint64(nil, 1<<62),
		"TLS hello":        append([]byte{0x16, 3, 1, 0, 200}, body(newRand(1), 200)...),
		"huge frame":       append(huge, body(newRand(2), 1000)...),
		"tiny frame":       append(tiny, 0, 0, 0, 0),
		"header too long":  append(lying, body(newRand(3), 100)...),
		"broken JSON":      jsonFrame(`{"code":10,"opaque":`),
		"JSON of no sense": jsonFrame(`[1,2,3]`),
		"random":           body(newRand(4), 100<<10),
	}
	for port, addr := range map[string]string{
		"remoting": master.addr, "second remoting": secondPort(t, master), "replication": master.ha, "name server": s.namesrv,
	} {
		for name, bytes := range garbage {
			t.Run(port+"/"+name, func(t *testing.T) { throw(t, addr, bytes) })
		}
	}

	held := hold(t, master.ha, binary.BigEndian.AppendUint64(nil, 1<<62), bytes.Repeat([]byte{0xff}, 8), []byte("hello\r\n\r\n"))
	for _, got := range sendAtOnce(s.wire, book, master, 5) {
		require.NoError(t, got.Err)
		require.NotEqual(t, codec.Success, got.Code, "no slave is there, whatever else is connected")
	}
	held()

	slave := s.slave(ours(), 1)
	s.joined(book, master, topic)
	fill(t, s.wire, book, master.addr, topic, queues, 100, 1000)
	s.caughtUp(master, slave)
	requireDrained(t, s.wire, book, slave.addr, topic, queues)
}

func jsonFrame(header string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(4+len(header)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(header)))
	return append(b, header...)
}

func secondPort(t testing.TB, n *node) string {
	t.Helper()
	_, port, err := net.SplitHostPort(n.addr)
	require.NoError(t, err)
	p, err := strconv.Atoi(port)
	require.NoError(t, err)
	return cluster.Local(p - 2)
}

// throw writes the bytes, half-closes, and reads what comes until the end or half a second of silence.
func throw(t testing.TB, addr string, b []byte) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, 3*time.Second)
	require.NoError(t, err, "the port takes connections")
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(500 * time.Millisecond))
	if _, err := c.Write(b); err == nil {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
}

// hold opens a connection for each of the texts, writes it, and keeps them open until the returned function is called.
func hold(t testing.TB, addr string, texts ...[]byte) (release func()) {
	t.Helper()
	var all []net.Conn
	for _, b := range texts {
		c, err := net.DialTimeout("tcp", addr, 3*time.Second)
		require.NoError(t, err)
		_, _ = c.Write(b)
		all = append(all, c)
	}
	return func() {
		for _, c := range all {
			_ = c.Close()
		}
	}
}

// TestWrongStartsAreRefusedClearly starts brokers that cannot run: each ends soon, with an exit status and a text that names the thing.
func TestWrongStartsAreRefusedClearly(t *testing.T) {
	if standIn() != "" {
		return // what tandem promises here, others do not
	}
	s := newSite(t, ours())
	running := s.master(ours(), "ASYNC_MASTER")
	_, port, err := net.SplitHostPort(running.addr)
	require.NoError(t, err)

	cases := []struct {
		name   string
		conf   cluster.Conf
		status []int
		says   []string
	}{
		{"port taken", cluster.Conf{"listenPort": port}, []int{1}, []string{port}},
		{"store locked", cluster.Conf{"storePathRootDir": running.store}, []int{1}, []string{running.store}},
		{"port out of range", cluster.Conf{"haListenPort": "70000"}, []int{1, 2}, []string{"haListenPort", "70000", "broker.conf"}},
		{"not a number", cluster.Conf{"slaveTimeout": "soon"}, []int{1, 2}, []string{"slaveTimeout", "soon", "broker.conf"}},
		{"negative size", cluster.Conf{"mappedFileSizeCommitLog": "-5"}, []int{1, 2}, []string{"mappedFileSizeCommitLog", "-5"}},
		{"unknown role", cluster.Conf{"brokerRole": "KING"}, []int{1, 2}, []string{"brokerRole", "KING", "SYNC_MASTER"}},
		{"unknown key", cluster.Conf{"brokerRoel": "SLAVE"}, []int{1, 2}, []string{"brokerRoel", "broker.conf"}},
		{"slave without an id", cluster.Conf{"brokerRole": "SLAVE", "brokerId": "0"}, []int{1, 2}, []string{"brokerId"}},
		{"setting that changes safety", cluster.Conf{"aclEnable": "true"}, []int{1, 2}, []string{"aclEnable"}},
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := s.newNode(ours(), "wrong"+strconv.Itoa(i), cluster.Conf{"brokerId": "0", "brokerRole": "ASYNC_MASTER"}, c.conf)
			out, status := runBriefly(t, n)
			require.Contains(t, c.status, status, "exit status; it printed:\n%s", out)
			for _, text := range c.says {
				require.Contains(t, out, text)
			}
		})
	}
	got := s.wire.send(running.addr, message{Topic: topic, ID: "still-here", Body: []byte("x")})
	require.NoError(t, got.Err)
	require.Equal(t, codec.Success, got.Code, "the running broker is not hurt: %v", got)
}

// runBriefly runs a broker that should end by itself, with an error, before long.
func runBriefly(t testing.TB, n *node) (out string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	out, err := cluster.Run(ctx, n.spec())
	var failed *cluster.RunError
	require.ErrorAs(t, err, &failed, "it must end with an error")
	require.False(t, errors.Is(err, context.DeadlineExceeded), "it went on running:\n%s", out)
	return out, failed.Exit.Code
}

// TestSegmentSizeOfAnExistingStoreIsHeld starts a broker over a store with other segments than its settings say.
func TestSegmentSizeOfAnExistingStoreIsHeld(t *testing.T) {
	if standIn() != "" {
		return
	}
	s := newSite(t, ours())
	n := s.master(ours(), "ASYNC_MASTER")
	got := s.wire.send(n.addr, message{Topic: topic, ID: "kept", Body: []byte("kept")})
	require.Equal(t, codec.Success, got.Code, "%v", got)
	n.stop()
	before := readAll(t, filepath.Join(n.store, "commitlog"))

	n.conf["mappedFileSizeCommitLog"] = segment1M
	out, status := runBriefly(t, n)
	require.NotZero(t, status)
	require.Contains(t, out, segment1M)
	require.Contains(t, out, segment16M)
	require.Equal(t, before, readAll(t, filepath.Join(n.store, "commitlog")), "the files are not touched")
}

func readAll(t testing.TB, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	all := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		all[e.Name()] = string(text)
	}
	return all
}
