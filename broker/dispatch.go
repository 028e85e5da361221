package broker

import (
	"strconv"

	"go.uber.org/zap"

	"tandem/codec"
	"tandem/engine"
)

// request is a cold request, copied out of its frame so that it may outlive it.
type request struct {
	conn engine.Conn
	cmd  codec.Command
}

// text is a header field, "" if absent.
func (r *request) text(name string) string { return r.cmd.Ext[name] }

// number is a header field as a number; ok is false if it is absent or none.
func (r *request) number(name string) (n int64, ok bool) {
	n, err := codec.FieldInt64(r.cmd.Ext, name)
	return n, err == nil
}

// int32 is number for the protocol's Integer fields.
func (r *request) int32(name string) (n int32, ok bool) {
	v, err := codec.FieldInt32(r.cmd.Ext, name)
	return v, err == nil
}

// answer is what a handler says: a code, a remark, header fields and a body.
type answer struct {
	code   codec.ResponseCode
	remark string
	ext    map[string]string
	body   []byte
}

func ok() answer { return answer{} }

func okBody(body []byte, err error) answer {
	if err != nil {
		return answer{code: codec.SystemError, remark: err.Error()}
	}
	return answer{body: body}
}

func okJSON(v any) answer { return okBody(codec.Marshal(v)) }

func failed(code codec.ResponseCode, remark string) answer { return answer{code: code, remark: remark} }

// missingField is the answer to a request without a field it needs, or with one that cannot be read.
func missingField(r *request, name string) answer {
	return failed(codec.InvalidParameter, "header field "+name+" is missing or not of its type: "+strconv.Quote(r.text(name)))
}

// handler serves a cold request. quick ones run on the loop and must neither block nor take long; the others run on the pool.
type handler struct {
	serve func(*Broker, *request) answer
	quick bool
}

// handlerFor is the table of what a broker answers, but for sends and pulls.
func handlerFor(code codec.RequestCode) (handler, bool) {
	quick := func(f func(*Broker, *request) answer) (handler, bool) { return handler{f, true}, true }
	slow := func(f func(*Broker, *request) answer) (handler, bool) { return handler{f, false}, true }
	switch code {
	case codec.ReqHeartbeat:
		return quick((*Broker).heartbeat)
	case codec.ReqUnregisterClient:
		return quick((*Broker).unregisterClient)
	case codec.ReqGetConsumerListByGroup:
		return quick((*Broker).consumerList)
	case codec.ReqCheckClientConfig:
		return quick((*Broker).checkClientConfig)
	case codec.ReqLockBatchMQ:
		return quick((*Broker).lockQueues)
	case codec.ReqUnlockBatchMQ:
		return quick((*Broker).unlockQueues)
	case codec.ReqQueryConsumerOffset:
		return quick((*Broker).queryOffset)
	case codec.ReqUpdateConsumerOffset:
		return quick((*Broker).updateOffset)
	case codec.ReqGetMaxOffset:
		return quick((*Broker).maxOffset)
	case codec.ReqGetMinOffset:
		return quick((*Broker).minOffset)
	case codec.ReqSearchOffsetByTimestamp:
		return slow((*Broker).searchOffset)
	case codec.ReqGetEarliestMsgStoreTime:
		return slow((*Broker).earliestTime)
	case codec.ReqViewMessageByID:
		return slow((*Broker).viewMessage)
	case codec.ReqUpdateAndCreateTopic:
		return slow((*Broker).updateTopic)
	case codec.ReqDeleteTopicInBroker:
		return slow((*Broker).deleteTopic)
	case codec.ReqGetAllTopicConfig:
		return slow((*Broker).allTopics)
	case codec.ReqGetTopicConfig:
		return slow((*Broker).topicConfig)
	case codec.ReqUpdateAndCreateGroup:
		return slow((*Broker).updateGroup)
	case codec.ReqDeleteSubscriptionGroup:
		return slow((*Broker).deleteGroup)
	case codec.ReqGetAllSubscriptionGroupConfig:
		return slow((*Broker).allGroups)
	case codec.ReqGetAllConsumerOffset:
		return slow((*Broker).allOffsets)
	case codec.ReqGetAllDelayOffset:
		return slow((*Broker).allDelayOffsets)
	case codec.ReqGetAllMessageRequestMode:
		return quick((*Broker).allRequestModes)
	case codec.ReqGetBrokerConfig:
		return slow((*Broker).brokerConfig)
	case codec.ReqGetBrokerRuntimeInfo:
		return slow((*Broker).runtimeInfo)
	case codec.ReqGetTopicStatsInfo:
		return slow((*Broker).topicStats)
	case codec.ReqGetConsumeStats:
		return slow((*Broker).consumeStats)
	case codec.ReqGetConsumerConnectionList:
		return slow((*Broker).consumerConnections)
	case codec.ReqGetProducerConnectionList:
		return slow((*Broker).producerConnections)
	case codec.ReqQueryTopicConsumeByWho:
		return slow((*Broker).topicGroups)
	case codec.ReqGetBrokerHAStatus:
		return slow((*Broker).haStatus)
	case codec.ReqExchangeBrokerHAInfo:
		return quick((*Broker).haInfo)
	case codec.ReqTandemHello:
		return quick((*Broker).hello)
	case codec.ReqTandemStatus:
		return slow((*Broker).status)
	default:
		return handler{}, false
	}
}

// OnOpen makes the loop's state at its first connection.
func (b *Broker) OnOpen(c engine.Conn) { b.state(c.Loop()) }

// OnFrame takes one request.
func (b *Broker) OnFrame(c engine.Conn, v *codec.View) {
	if v.IsResponse() {
		return // to a notification; nobody waits for it
	}
	st := b.state(c.Loop())
	switch v.Code {
	case codec.ReqSendMessageV2, codec.ReqSendMessage, codec.ReqSendBatchMessage:
		st.onSend(c, v)
	case codec.ReqPullMessage, codec.ReqLitePullMessage:
		st.onPull(c, v)
	default:
		st.onOther(c, v)
	}
}

// OnTurn ends the turn: the sends it brought are appended together.
func (b *Broker) OnTurn(l *engine.Loop) {
	if st, ok := l.Local().(*loopState); ok {
		st.appendTurn()
	}
}

// OnClose forgets the client and the pulls held for it.
func (b *Broker) OnClose(c engine.Conn, _ error) {
	b.clients.disconnected(c)
	b.holds.drop(c.ID())
}

// onOther serves all that is not a send or a pull.
func (st *loopState) onOther(c engine.Conn, v *codec.View) {
	h, found := handlerFor(v.Code)
	if !found {
		st.refuse(c, v, codec.RequestCodeNotSupported, "request type "+strconv.Itoa(int(v.Code))+" not supported")
		return
	}
	r := &request{conn: c, cmd: codec.Command{Code: v.Code, Language: v.Language, Version: v.Version, Opaque: v.Opaque, Flag: v.Flag,
		Serialize: v.Serialize, Ext: v.Ext(), Body: v.Body}}
	if h.quick {
		if a := h.serve(st.b, r); !v.IsOneway() {
			out := c.Out()
			*out = r.appendAnswer(*out, a)
		}
		return
	}
	st.serveOnPool(h, r)
}

// serveOnPool runs a handler away from the loop; its answer comes back as a task.
func (st *loopState) serveOnPool(h handler, r *request) {
	r.cmd.Body = append([]byte(nil), r.cmd.Body...)
	r.conn.Begin()
	t := &slowAnswer{r: r}
	if st.b.pool.Try(func() {
		defer st.loop.Post(t)
		defer st.b.survive(t)
		t.a = h.serve(st.b, r)
	}) {
		return
	}
	t.a = failed(codec.SystemBusy, "[OVERLOAD]too many slow requests wait")
	t.RunOnLoop(st.loop)
}

// survive turns a handler's panic into an answer: it costs the request, not the broker.
func (b *Broker) survive(t *slowAnswer) {
	if v := recover(); v != nil {
		b.log.Error("a request handler panicked", zap.Int32("code", t.r.cmd.Code), zap.Any("panic", v), zap.Stack("stack"))
		t.a = failed(codec.SystemError, "the broker failed over this request; its log says where")
	}
}

type slowAnswer struct {
	r *request
	a answer
}

// RunOnLoop gives the answer out.
func (t *slowAnswer) RunOnLoop(*engine.Loop) {
	t.r.conn.End()
	if t.r.cmd.IsOneway() || t.r.conn.Closed() {
		return
	}
	out := t.r.conn.Out()
	*out = t.r.appendAnswer(*out, t.a)
}

// appendAnswer encodes an answer in the request's own header form.
func (r *request) appendAnswer(dst []byte, a answer) []byte {
	v := codec.View{Code: r.cmd.Code, Opaque: r.cmd.Opaque, Serialize: r.cmd.Serialize}
	resp := codec.Respond(&v, a.code, a.remark)
	resp.Ext, resp.Body = a.ext, a.body
	return codec.AppendFrame(dst, resp)
}
