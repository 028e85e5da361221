package nameserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/engine"
)

// fakeClock is a clock that tests move.
type fakeClock struct{ millis atomic.Int64 }

func (c *fakeClock) now() time.Time { return time.UnixMilli(c.millis.Load()) }

func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	o.Addr = "127.0.0.1:0"
	s, err := Start(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, s.Shutdown(ctx))
	})
	return s
}

// peer is one connection to a server, whole frames in and out.
type peer struct {
	t    *testing.T
	conn net.Conn
}

func dial(t *testing.T, s *Server) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &peer{t, conn}
}

func (p *peer) send(frame []byte) {
	p.t.Helper()
	_, err := p.conn.Write(frame)
	require.NoError(p.t, err)
}

func (p *peer) receive() codec.Command {
	p.t.Helper()
	require.NoError(p.t, p.conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	frame := make([]byte, 4)
	_, err := io.ReadFull(p.conn, frame)
	require.NoError(p.t, err)
	frame = append(frame, make([]byte, binary.BigEndian.Uint32(frame))...)
	_, err = io.ReadFull(p.conn, frame[4:])
	require.NoError(p.t, err)
	return decode(p.t, frame)
}

func (p *peer) call(req *codec.Command) codec.Command {
	p.t.Helper()
	p.send(codec.AppendFrame(nil, req))
	return p.receive()
}

func decode(t *testing.T, frame []byte) codec.Command {
	t.Helper()
	cmd, err := codec.DecodeFrame(frame)
	require.NoError(t, err)
	return cmd
}

func readFile(t *testing.T, path ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"testdata"}, path...)...))
	require.NoError(t, err)
	return b
}

// conversation returns the names of a captured conversation in its order.
func conversation(t *testing.T, version string) []string {
	paths, err := filepath.Glob(filepath.Join("testdata", version, "*.req"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	names := make([]string, len(paths))
	opaque := map[string]int32{}
	for i, path := range paths {
		names[i] = strings.TrimSuffix(filepath.Base(path), ".req")
		opaque[names[i]] = decode(t, readFile(t, version, names[i]+".req")).Opaque
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(opaque[a], opaque[b]), cmp.Compare(a, b)) // master before slave
	})
	return names
}

func TestAnswersEqualThoseOfApacheRocketMQInMeaning(t *testing.T) {
	for _, version := range []string{"5.5.0", "4.9.7"} {
		t.Run(version, func(t *testing.T) {
			p := dial(t, startServer(t, Options{}))
			for _, name := range conversation(t, version) {
				p.send(readFile(t, version, name+".req"))
				got, want := p.receive(), decode(t, readFile(t, version, name+".resp"))
				require.Equal(t, want.Code, got.Code, name)
				require.Equal(t, want.Opaque, got.Opaque, name)
				require.True(t, got.IsResponse(), name)
				if len(want.Ext)+len(got.Ext) > 0 {
					require.Equal(t, want.Ext, got.Ext, name)
				}
				// Fields that only 5.x has are the whole difference.
				body := strings.ReplaceAll(string(want.Body), `"cluster":"C"}`, `"cluster":"C","enableActingMaster":false}`)
				body = strings.ReplaceAll(body, `{"counter":1,"timestamp"`, `{"counter":1,"stateVersion":0,"timestamp"`)
				if version == "5.5.0" {
					body = string(want.Body)
				}
				if json.Valid([]byte(body)) {
					require.JSONEq(t, body, string(got.Body), name)
				} else { // number keys without quotes
					require.Equal(t, body, string(got.Body), name)
				}
			}
		})
	}
}

func TestWhatRealBrokersSendIsUnderstood(t *testing.T) {
	for version, topics := range map[string]int{"5.5.0": 15, "4.9.7": 8} {
		t.Run(version, func(t *testing.T) {
			s := startServer(t, Options{})
			master, slave := dial(t, s), dial(t, s)
			frame := func(name string) []byte { return readFile(t, "broker-"+version, name) }

			master.send(frame("master-103-register.req"))
			require.Equal(t, codec.Success, master.receive().Code)
			slave.send(frame("slave-103-register.req"))
			answer := slave.receive()
			require.Equal(t, codec.Success, answer.Code)
			registration := decode(t, frame("master-103-register.req"))
			require.Equal(t, registration.Ext["brokerAddr"], answer.Ext["masterAddr"])
			require.Equal(t, registration.Ext["haServerAddr"], answer.Ext["haServerAddr"])
			require.Len(t, topicsOf(t, master), topics)

			if version == "5.5.0" {
				master.send(frame("master-103-register-one-topic.req"))
				require.Equal(t, codec.Success, master.receive().Code)
			} else {
				master.send(frame("master-103-register-oneway.req"))
			}
			require.Contains(t, topicsOf(t, master), "NewT")

			master.send(frame("master-104-unregister.req"))
			require.Equal(t, codec.Success, master.receive().Code)
			route := routeOf(t, master, "NewT")
			require.Equal(t, map[int64]string{1: decode(t, frame("slave-103-register.req")).Ext["brokerAddr"]},
				route.BrokerDatas[0].BrokerAddrs)
			slave.send(frame("slave-104-unregister.req"))
			require.Equal(t, codec.Success, slave.receive().Code)
			require.Empty(t, topicsOf(t, master))
		})
	}
}

func topicsOf(t *testing.T, p *peer) []string {
	t.Helper()
	answer := p.call(codec.NewRequest(codec.ReqGetAllTopicListFromNamesrv, nil, nil))
	require.Equal(t, codec.Success, answer.Code)
	var list codec.TopicList
	require.NoError(t, codec.Unmarshal(answer.Body, &list))
	return list.TopicList
}

func routeOf(t *testing.T, p *peer, topic string) codec.TopicRoute {
	t.Helper()
	answer := p.call(codec.NewRequest(codec.ReqGetRouteInfoByTopic, map[string]string{"topic": topic}, nil))
	require.Equal(t, codec.Success, answer.Code, answer.Remark)
	var route codec.TopicRoute
	require.NoError(t, codec.Unmarshal(answer.Body, &route))
	return route
}

func registerRequest(name, id, addr string) *codec.Command {
	return codec.NewRequest(codec.ReqRegisterBroker, map[string]string{
		"brokerName": name, "brokerAddr": addr, "clusterName": "C", "haServerAddr": addr, "brokerId": id,
	}, []byte(plainBody))
}

// known says whether the server has a broker of that name.
func known(t *testing.T, p *peer, name string) bool {
	answer := p.call(codec.NewRequest(codec.ReqGetBrokerMemberGroup,
		map[string]string{"clusterName": "C", "brokerName": name}, nil))
	var body codec.BrokerMemberGroupBody
	require.NoError(t, codec.Unmarshal(answer.Body, &body))
	return len(body.BrokerMemberGroup.BrokerAddrs) > 0
}

func TestTheCloseOfItsConnectionRemovesABrokerAtOnce(t *testing.T) {
	s := startServer(t, Options{})
	broker, other := dial(t, s), dial(t, s)
	require.Equal(t, codec.Success, broker.call(registerRequest("b1", "0", addrM)).Code)
	require.True(t, known(t, other, "b1"))
	require.NoError(t, broker.conn.Close())
	require.Eventually(t, func() bool { return !known(t, other, "b1") }, 5*time.Second, time.Millisecond)
}

func TestASilentBrokerIsRemovedAndItsConnectionClosed(t *testing.T) {
	clock := &fakeClock{}
	s := startServer(t, Options{Now: clock.now, ScanInterval: time.Millisecond})
	silent, alive, asking := dial(t, s), dial(t, s), dial(t, s)
	require.Equal(t, codec.Success, silent.call(registerRequest("b1", "0", addrM)).Code)
	require.Equal(t, codec.Success, alive.call(registerRequest("b2", "0", addrS)).Code)

	clock.millis.Add(100_000)
	heartbeat := codec.NewRequest(codec.ReqBrokerHeartbeat, map[string]string{
		"clusterName": "C", "brokerName": "b2", "brokerAddr": addrS,
	}, nil)
	heartbeat.MarkOneway()
	alive.send(codec.AppendFrame(nil, heartbeat))
	require.True(t, known(t, alive, "b1"), "100 s are not too long, and the heartbeat was taken before this")

	clock.millis.Add(30_000)
	require.Eventually(t, func() bool { return !known(t, asking, "b1") }, 5*time.Second, time.Millisecond)
	require.True(t, known(t, asking, "b2"))
	require.NoError(t, silent.conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := silent.conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
}

func TestAskingForTheDataVersionIsASignOfLife(t *testing.T) {
	clock := &fakeClock{}
	s := startServer(t, Options{Now: clock.now, ScanInterval: time.Millisecond})
	p := dial(t, s)
	ask := func(body string) codec.Command {
		return p.call(codec.NewRequest(codec.ReqQueryDataVersion, map[string]string{
			"brokerName": "b1", "brokerAddr": addrM, "clusterName": "C", "brokerId": "0",
		}, []byte(body)))
	}
	answer := ask(`{"counter":3,"timestamp":7}`)
	require.Equal(t, "true", answer.Ext["changed"], "nobody is registered")
	require.Empty(t, answer.Body)
	p.call(registerRequest("b1", "0", addrM))
	for range 5 {
		clock.millis.Add(100_000)
		answer = ask(`{"counter":3,"timestamp":7}`)
		require.Equal(t, "false", answer.Ext["changed"])
	}
	answer = ask(`{"counter":4,"timestamp":7}`)
	require.Equal(t, "true", answer.Ext["changed"])
	require.Contains(t, string(answer.Body), `"counter":3`)
}

func TestNumberKeysAreQuotedOnlyForThoseWhoCanReadThem(t *testing.T) {
	s := startServer(t, Options{})
	p := dial(t, s)
	p.call(registerRequest("b1", "0", addrM))
	for name, test := range map[string]struct {
		version int32
		ext     map[string]string
		want    string
	}{
		"an old client":                {390, nil, `{0:"`},
		"an old client that wants it":  {317, map[string]string{"acceptStandardJsonOnly": "true"}, `{"0":"`},
		"a client since V4_9_4":        {401, nil, `{"0":"`},
		"one before, wanting it not":   {400, map[string]string{"acceptStandardJsonOnly": "false"}, `{0:"`},
		"a client of 5.5.0 on default": {513, nil, `{"0":"`},
	} {
		t.Run(name, func(t *testing.T) {
			req := codec.NewRequest(codec.ReqGetRouteInfoByTopic, map[string]string{"topic": "T1"}, nil)
			req.Version = test.version
			for k, v := range test.ext {
				req.Ext[k] = v
			}
			require.Contains(t, string(p.call(req).Body), `"brokerAddrs":`+test.want)
		})
	}
}

func TestRequestsOfToolsAreAnswered(t *testing.T) {
	s := startServer(t, Options{})
	p := dial(t, s)
	p.call(registerRequest("b1", "0", addrM))
	type fields = map[string]string
	// One after the other, on the state the ones before left.
	for _, step := range []struct {
		name string
		code codec.RequestCode
		ext  fields
		body string

		want    codec.ResponseCode
		wantExt fields
		inBody  string
	}{
		{"topics of a cluster", 224, fields{"cluster": "C"}, "", 0, nil, `"topicList":["T1","T2"]`},
		{"topics of no cluster", 224, fields{"cluster": "X"}, "", 0, nil, `"topicList":[]`},
		{"system topics", 304, nil, "", 0, nil, `"topicList":["C","b1"]`},
		{"an address for them", 304, nil, "", 0, nil, `"brokerAddr":"` + addrM + `"`},
		{"wipe", 205, fields{"brokerName": "b1"}, "", 0, fields{"wipeTopicCount": "2"}, ""},
		{"wiped", 105, fields{"topic": "T1"}, "", 0, nil, `"perm":4`},
		{"give back", 327, fields{"brokerName": "b1"}, "", 0, fields{"addTopicCount": "2"}, ""},
		{"given back", 105, fields{"topic": "T1"}, "", 0, nil, `"perm":6`},
		{"register a topic", 217, fields{"topic": "T9"}, `{"queueDatas":[{"brokerName":"b1","perm":6,"readQueueNums":1,"writeQueueNums":1}]}`, 0, nil, ""},
		{"registered", 206, nil, "", 0, nil, `["T1","T2","T9"]`},
		{"delete it elsewhere", 216, fields{"topic": "T9", "clusterName": "X"}, "", 0, nil, ""},
		{"still there", 206, nil, "", 0, nil, `["T1","T2","T9"]`},
		{"delete it", 216, fields{"topic": "T9"}, "", 0, nil, ""},
		{"deleted", 206, nil, "", 0, nil, `["T1","T2"]`},
		{"nothing under a key", 101, fields{"namespace": "N", "key": "k"}, "", codec.QueryNotFound, nil, ""},
		{"nothing in a namespace", 219, fields{"namespace": "N"}, "", codec.QueryNotFound, nil, ""},
		{"put", 100, fields{"namespace": "N", "key": "k", "value": "v"}, "", 0, nil, ""},
		{"get", 101, fields{"namespace": "N", "key": "k"}, "", 0, fields{"value": "v"}, ""},
		{"list", 219, fields{"namespace": "N"}, "", 0, nil, `{"table":{"k":"v"}}`},
		{"delete key", 102, fields{"namespace": "N", "key": "k"}, "", 0, nil, ""},
		{"key is gone", 101, fields{"namespace": "N", "key": "k"}, "", codec.QueryNotFound, nil, ""},
		{"settings", 319, nil, "", 0, nil, "orderMessageEnable=false\n"},
		{"a setting that can't change", 318, nil, "orderMessageEnable=true\nlistenPort=1\n", codec.SystemError, nil, ""},
		{"nothing changed", 319, nil, "", 0, nil, "orderMessageEnable=false\n"},
		{"a bad value", 318, nil, "orderMessageEnable=perhaps", codec.SystemError, nil, ""},
		{"change", 318, nil, "# order\norderMessageEnable = true\n", 0, nil, ""},
		{"order of a topic", 100, fields{"namespace": "ORDER_TOPIC_CONFIG", "key": "T1", "value": "b1:4"}, "", 0, nil, ""},
		{"order in the route", 105, fields{"topic": "T1"}, "", 0, nil, `"orderTopicConf":"b1:4"`},
		{"order for brokers", 103, registerRequest("b1", "0", addrM).Ext, plainBody, 0, nil, `{"table":{"T1":"b1:4"}}`},
		{"a field is missing", 105, nil, "", codec.SystemError, nil, ""},
		{"a code nobody knows", 4711, nil, "", codec.RequestCodeNotSupported, nil, ""},
		{"the checksum is wrong", 103, fields{"brokerName": "b9", "brokerAddr": addrS, "clusterName": "C", "brokerId": "0", "bodyCrc32": "1"}, plainBody, codec.SystemError, nil, ""},
		{"and nothing came of it", 901, fields{"clusterName": "C", "brokerName": "b9"}, "", 0, nil, `"brokerAddrs":{}`},
		{"an empty name", 103, fields{"brokerName": "", "brokerAddr": addrS, "clusterName": "C", "brokerId": "0"}, plainBody, codec.SystemError, nil, ""},
		{"a bad id", 103, fields{"brokerName": "b9", "brokerAddr": addrS, "clusterName": "C", "brokerId": "x"}, plainBody, codec.SystemError, nil, ""},
		{"unregister", 104, fields{"brokerName": "b1", "brokerAddr": addrM, "clusterName": "C", "brokerId": "0"}, "", 0, nil, ""},
		{"gone", 105, fields{"topic": "T1"}, "", codec.TopicNotExist, nil, ""},
	} {
		answer := p.call(codec.NewRequest(step.code, step.ext, []byte(step.body)))
		require.Equal(t, step.want, answer.Code, "%s: %s", step.name, answer.Remark)
		for k, v := range step.wantExt {
			require.Equal(t, v, answer.Ext[k], step.name)
		}
		require.Contains(t, string(answer.Body), step.inBody, step.name)
		if step.want != codec.Success {
			require.NotEmpty(t, answer.Remark, step.name)
		}
	}
}

func TestAOneWayRequestHasNoAnswer(t *testing.T) {
	s := startServer(t, Options{})
	p := dial(t, s)
	for _, req := range []*codec.Command{
		registerRequest("b1", "0", addrM),
		codec.NewRequest(codec.ReqBrokerHeartbeat, map[string]string{"brokerAddr": addrM}, nil),
		codec.NewRequest(4711, nil, nil),
	} {
		req.MarkOneway()
		p.send(codec.AppendFrame(nil, req))
	}
	answer := p.call(&codec.Command{Code: codec.ReqGetAllTopicListFromNamesrv, Opaque: 77, Version: 513})
	require.Equal(t, int32(77), answer.Opaque, "the first answer is to the first request that wants one")
	require.Contains(t, string(answer.Body), "T1", "the one-way registration was taken")
}

func TestAnswersComeInTheHeaderFormOfTheRequest(t *testing.T) {
	s := startServer(t, Options{})
	p := dial(t, s)
	for _, form := range []codec.Serialize{codec.JSON, codec.Binary} {
		req := registerRequest("b1", "1", addrM)
		req.Serialize = form
		require.Equal(t, form, p.call(req).Serialize)
	}
}

func TestTheClientOfTheBrokerGetsItsAnswers(t *testing.T) {
	s := startServer(t, Options{})
	client := engine.NewClient(engine.ClientOptions{})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	addr := s.Addr().String()
	_, err := client.Call(ctx, addr, registerRequest("b1", "0", addrM))
	require.NoError(t, err)
	answer, err := client.Call(ctx, addr, registerRequest("b1", "1", addrS))
	require.NoError(t, err)
	require.Equal(t, addrM, answer.Ext["masterAddr"])
	answer, err = client.Call(ctx, addr, codec.NewRequest(codec.ReqGetBrokerClusterInfo, nil, nil))
	require.NoError(t, err)
	require.True(t, bytes.Contains(answer.Body, []byte(`{0:"`+addrM+`",1:"`+addrS+`"}`)), "%s", answer.Body)
}

func TestATakenPortIsNamed(t *testing.T) {
	s := startServer(t, Options{})
	_, err := Start(Options{Addr: s.Addr().String()})
	require.ErrorIs(t, err, engine.ErrAddrInUse)
	require.ErrorContains(t, err, s.Addr().String())
}

func TestShutdownTwiceIsHarmless(t *testing.T) {
	s := startServer(t, Options{})
	require.NoError(t, s.Shutdown(context.Background()))
}
