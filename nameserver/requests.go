package nameserver

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"tandem/codec"
	"tandem/engine"
)

// request is one request with its header fields taken apart.
type request struct {
	*codec.View
	conn engine.Conn
	ext  map[string]string
	now  time.Time
}

// answer becomes the response.
type answer struct {
	code   codec.ResponseCode
	remark string
	ext    map[string]string
	body   []byte
}

var done = answer{code: codec.Success}

func failed(code codec.ResponseCode, format string, args ...any) answer {
	return answer{code: code, remark: fmt.Sprintf(format, args...)}
}

func jsonAnswer(v any) answer {
	body, err := codec.Marshal(v)
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	return answer{code: codec.Success, body: body}
}

// fields returns the named header fields; an absent one is an error.
func (r *request) fields(names ...string) ([]string, error) {
	values := make([]string, len(names))
	for i, name := range names {
		value, ok := r.ext[name]
		if !ok {
			return nil, fmt.Errorf("%w: %s is missing", codec.ErrField, name)
		}
		values[i] = value
	}
	return values, nil
}

// number returns a numeric field; an absent one is 0.
func (r *request) number(name string) (int64, error) {
	text, ok := r.ext[name]
	if !ok || text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s is %q, not a number", codec.ErrField, name, text)
	}
	return n, nil
}

// flag returns a boolean field; an absent one is false.
func (r *request) flag(name string) bool { return strings.EqualFold(r.ext[name], "true") }

// serve answers a request.
func (h *handler) serve(r *request) answer {
	switch r.Code {
	case codec.ReqRegisterBroker:
		return h.registerBroker(r)
	case codec.ReqUnregisterBroker:
		return h.unregisterBroker(r)
	case codec.ReqQueryDataVersion:
		return h.queryDataVersion(r)
	case codec.ReqBrokerHeartbeat:
		return h.brokerHeartbeat(r)
	case codec.ReqGetRouteInfoByTopic:
		return h.routeByTopic(r)
	case codec.ReqGetBrokerClusterInfo:
		info := h.routes.clusterInfo()
		return answer{code: codec.Success, body: info.AppendJSON(nil, false)}
	case codec.ReqGetBrokerMemberGroup:
		return h.memberGroup(r)
	case codec.ReqGetAllTopicListFromNamesrv:
		return topicList(h.routes.topicNames(), "")
	case codec.ReqGetTopicsByCluster:
		return h.topicsByCluster(r)
	case codec.ReqGetSystemTopicListFromNamesrv:
		return topicList(h.routes.systemTopics())
	case codec.ReqWipeWritePermOfBroker:
		return h.setWritable(r, false, "wipeTopicCount")
	case codec.ReqAddWritePermOfBroker:
		return h.setWritable(r, true, "addTopicCount")
	case codec.ReqDeleteTopicInNamesrv:
		return h.deleteTopic(r)
	case codec.ReqRegisterTopicInNamesrv:
		return h.registerTopic(r)
	default:
		return h.serveSettings(r)
	}
}

// serveSettings answers what is not about routes.
func (h *handler) serveSettings(r *request) answer {
	switch r.Code {
	case codec.ReqPutKVConfig:
		return h.putKV(r)
	case codec.ReqGetKVConfig:
		return h.getKV(r)
	case codec.ReqDeleteKVConfig:
		return h.deleteKV(r)
	case codec.ReqGetKVListByNamespace:
		return h.listKV(r)
	case codec.ReqUpdateNamesrvConfig:
		return h.updateConfig(r)
	case codec.ReqGetNamesrvConfig:
		return h.getConfig()
	default:
		return failed(codec.RequestCodeNotSupported, " request type %d not supported", r.Code)
	}
}

func (h *handler) registerBroker(r *request) answer {
	reg, err := readRegistration(r)
	if err != nil {
		h.log.Warn("registration refused", zap.Stringer("from", r.conn.RemoteAddr()), zap.Error(err))
		return failed(codec.SystemError, "register broker: %v", err)
	}
	_, known := h.routes.dataVersion(reg.addr)
	result, err := h.routes.register(reg, r.now)
	if err != nil {
		h.log.Warn("registration refused", zap.String("addr", reg.addr), zap.String("brokerName", reg.name), zap.Error(err))
		return failed(codec.SystemError, "register broker: %v", err)
	}
	if !known {
		h.log.Info("broker registered", zap.String("addr", reg.addr), zap.String("cluster", reg.cluster),
			zap.String("brokerName", reg.name), zap.Int64("brokerId", reg.id), zap.Int("topics", len(reg.topics)))
	}
	h.conns[r.conn.ID()] = r.conn
	return h.registeredAnswer(result)
}

// registeredAnswer leaves out what is not known: an absent address, not an empty
// one, tells a slave that it has no master.
func (h *handler) registeredAnswer(result registered) answer {
	a := answer{code: codec.Success, ext: map[string]string{}}
	if result.masterAddr != "" {
		a.ext["masterAddr"] = result.masterAddr
		a.ext["haServerAddr"] = result.haServerAddr
	}
	if order, ok := h.kv.list(orderNamespace); ok {
		a.body = jsonAnswer(codec.KVTable{Table: order}).body
	}
	return a
}

func readRegistration(r *request) (reg registration, err error) {
	texts, err := r.fields("clusterName", "brokerName", "brokerAddr")
	if err != nil {
		return reg, err
	}
	reg.cluster, reg.name, reg.addr = texts[0], texts[1], texts[2]
	if reg.cluster == "" || reg.name == "" || reg.addr == "" {
		return reg, fmt.Errorf("%w: clusterName %q, brokerName %q and brokerAddr %q must not be empty",
			codec.ErrField, reg.cluster, reg.name, reg.addr)
	}
	crc, crcErr := r.number("bodyCrc32")
	millis, millisErr := r.number("heartbeatTimeoutMillis")
	id, idErr := r.number("brokerId")
	if err := cmp.Or(crcErr, millisErr, idErr); err != nil {
		return reg, err
	}
	if err := checkBody(r.Body, uint32(crc)); err != nil {
		return reg, err
	}
	body, err := decodeRegisterBody(r.Body, r.Version, r.flag("compressed"))
	if err != nil {
		return reg, err
	}
	reg.id, reg.timeout, reg.conn = id, time.Duration(millis)*time.Millisecond, r.conn.ID()
	reg.haAddr, reg.zone = r.ext["haServerAddr"], r.ext["zoneName"]
	_, reg.actingKnown = r.ext["enableActingMaster"]
	reg.actingMaster = r.flag("enableActingMaster")
	reg.version = body.TopicConfigSerializeWrapper.DataVersion
	reg.topics = body.TopicConfigSerializeWrapper.TopicConfigTable
	reg.filters = body.FilterServerList
	return reg, nil
}

func (h *handler) unregisterBroker(r *request) answer {
	f, err := r.fields("brokerAddr")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	h.routes.unregister(f[0])
	h.log.Info("broker unregistered", zap.String("addr", f[0]), zap.String("brokerName", r.ext["brokerName"]))
	return done
}

// queryDataVersion tells a broker whether it has to register again, and
// counts as a sign of life.
func (h *handler) queryDataVersion(r *request) answer {
	f, err := r.fields("brokerAddr")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	var asked codec.DataVersion
	if len(r.Body) > 0 {
		if err := codec.Unmarshal(r.Body, &asked); err != nil {
			return failed(codec.SystemError, "data version: %v", err)
		}
	}
	h.routes.heartbeat(f[0], r.now)
	known, ok := h.routes.dataVersion(f[0])
	a := done
	if ok {
		a = jsonAnswer(known)
	}
	a.ext = map[string]string{"changed": strconv.FormatBool(!ok || known != asked)}
	return a
}

func (h *handler) brokerHeartbeat(r *request) answer {
	f, err := r.fields("brokerAddr")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	h.routes.heartbeat(f[0], r.now)
	return done
}

func (h *handler) routeByTopic(r *request) answer {
	f, err := r.fields("topic")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	route, ok := h.routes.route(f[0])
	if !ok {
		return failed(codec.TopicNotExist, "No topic route info in name server for the topic: %s", f[0])
	}
	if h.options.OrderMessageEnable {
		route.OrderTopicConf, _ = h.kv.get(orderNamespace, f[0])
	}
	standard := r.Version >= codec.VersionV4_9_4 || r.flag("acceptStandardJsonOnly")
	return answer{code: codec.Success, body: route.AppendJSON(nil, standard)}
}

func (h *handler) memberGroup(r *request) answer {
	f, err := r.fields("clusterName", "brokerName")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	body := codec.BrokerMemberGroupBody{BrokerMemberGroup: codec.BrokerMemberGroup{
		Cluster: f[0], BrokerName: f[1], BrokerAddrs: h.routes.members(f[1]),
	}}
	return answer{code: codec.Success, body: body.AppendJSON(nil, false)}
}

func topicList(topics []string, brokerAddr string) answer {
	if topics == nil {
		topics = []string{}
	}
	return jsonAnswer(codec.TopicList{TopicList: topics, BrokerAddr: brokerAddr})
}

func (h *handler) topicsByCluster(r *request) answer {
	f, err := r.fields("cluster")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	return topicList(h.routes.clusterTopics(f[0]), "")
}

func (h *handler) setWritable(r *request, writable bool, countField string) answer {
	f, err := r.fields("brokerName")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	n := h.routes.setWritable(f[0], writable)
	h.log.Info("write permission of a broker changed", zap.String("brokerName", f[0]),
		zap.Bool("writable", writable), zap.Int("topics", n))
	return answer{code: codec.Success, ext: map[string]string{countField: strconv.Itoa(n)}}
}

func (h *handler) deleteTopic(r *request) answer {
	f, err := r.fields("topic")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	h.routes.deleteTopic(f[0], r.ext["clusterName"])
	h.log.Info("topic deleted", zap.String("topic", f[0]), zap.String("cluster", r.ext["clusterName"]))
	return done
}

func (h *handler) registerTopic(r *request) answer {
	f, err := r.fields("topic")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	var route codec.TopicRoute
	if len(r.Body) > 0 {
		if err := codec.Unmarshal(r.Body, &route); err != nil {
			return failed(codec.SystemError, "route of topic %s: %v", f[0], err)
		}
	}
	h.routes.registerTopic(f[0], route.QueueDatas)
	return done
}

func (h *handler) putKV(r *request) answer {
	f, err := r.fields("namespace", "key", "value")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	h.kv.put(f[0], f[1], f[2])
	return done
}

func (h *handler) getKV(r *request) answer {
	f, err := r.fields("namespace", "key")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	value, ok := h.kv.get(f[0], f[1])
	if !ok {
		return failed(codec.QueryNotFound, "No config item, Namespace: %s Key: %s", f[0], f[1])
	}
	return answer{code: codec.Success, ext: map[string]string{"value": value}}
}

func (h *handler) deleteKV(r *request) answer {
	f, err := r.fields("namespace", "key")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	h.kv.delete(f[0], f[1])
	return done
}

func (h *handler) listKV(r *request) answer {
	f, err := r.fields("namespace")
	if err != nil {
		return failed(codec.SystemError, "%v", err)
	}
	all, ok := h.kv.list(f[0])
	if !ok {
		return failed(codec.QueryNotFound, "No config item, Namespace: %s", f[0])
	}
	return jsonAnswer(codec.KVTable{Table: all})
}

const orderMessageKey = "orderMessageEnable"

// getConfig shows the settings as properties text.
func (h *handler) getConfig() answer {
	settings := map[string]string{
		orderMessageKey:               strconv.FormatBool(h.options.OrderMessageEnable),
		"scanNotActiveBrokerInterval": strconv.FormatInt(h.options.ScanInterval.Milliseconds(), 10),
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		text.WriteString(key + "=" + settings[key] + "\n")
	}
	return answer{code: codec.Success, body: []byte(text.String())}
}

// updateConfig changes the one setting that can change while running; any other
// is refused by name, and then nothing changes.
func (h *handler) updateConfig(r *request) answer {
	order := h.options.OrderMessageEnable
	for line := range strings.Lines(string(r.Body)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		enable, err := strconv.ParseBool(value)
		switch {
		case key != orderMessageKey:
			return failed(codec.SystemError, "%s can't be changed while the name server runs; only %s can", key, orderMessageKey)
		case err != nil:
			return failed(codec.SystemError, "%s is %q; true or false are valid", key, value)
		}
		order = enable
	}
	h.options.OrderMessageEnable = order
	return done
}
