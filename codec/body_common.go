package codec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// DataVersion says how new a table is (Apache class DataVersion). Two tables
// are the same if all three numbers are.
type DataVersion struct {
	StateVersion int64 `json:"stateVersion"` // the controller's epoch; 4.9 has none
	Timestamp    int64 `json:"timestamp"`    // ms since 1970 of the last change
	Counter      int64 `json:"counter"`      // changes so far
}

// MessageQueue names one queue of one broker (Apache class MessageQueue).
type MessageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

func (q MessageQueue) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"brokerName":`...)
	dst = appendJSONString(dst, q.BrokerName)
	dst = append(dst, `,"queueId":`...)
	dst = strconv.AppendInt(dst, int64(q.QueueID), 10)
	dst = append(dst, `,"topic":`...)
	dst = appendJSONString(dst, q.Topic)
	return append(dst, '}')
}

func compareQueues(a, b MessageQueue) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.BrokerName, b.BrokerName), cmp.Compare(a.QueueID, b.QueueID))
}

// queueTable is a map keyed by a queue as standardJSON leaves it: the key is
// the object's text.
type queueTable[V any] map[MessageQueue]V

func (t *queueTable[V]) UnmarshalJSON(src []byte) error {
	var byText map[string]V
	if err := json.Unmarshal(src, &byText); err != nil {
		return err
	}
	if byText == nil {
		return nil
	}
	*t = make(queueTable[V], len(byText))
	for text, v := range byText {
		var q MessageQueue
		if err := Unmarshal([]byte(text), &q); err != nil {
			return fmt.Errorf("queue %.80q as a key: %w", text, err)
		}
		(*t)[q] = v
	}
	return nil
}

// appendQueueTable writes a map keyed by a queue, the key as a raw object: the
// only form every fastjson reads.
func appendQueueTable[V any](dst []byte, m map[MessageQueue]V, value func([]byte, V) []byte) []byte {
	dst = append(dst, '{')
	for i, q := range slices.SortedFunc(maps.Keys(m), compareQueues) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = q.appendJSON(dst)
		dst = append(dst, ':')
		dst = value(dst, m[q])
	}
	return append(dst, '}')
}

// appendAddrs writes broker ids and addresses, the ids quoted if standard.
func appendAddrs(dst []byte, m map[int64]string, standard bool) []byte {
	dst = append(dst, '{')
	for i, id := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		if standard {
			dst = append(dst, '"')
		}
		dst = strconv.AppendInt(dst, id, 10)
		if standard {
			dst = append(dst, '"')
		}
		dst = append(dst, ':')
		dst = appendJSONString(dst, m[id])
	}
	return append(dst, '}')
}

// appendTable writes a map with text keys, sorted.
func appendTable[V any](dst []byte, m map[string]V, value func([]byte, V) []byte) []byte {
	dst = append(dst, '{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendJSONString(dst, name)
		dst = append(dst, ':')
		dst = value(dst, m[name])
	}
	return append(dst, '}')
}

func appendList[V any](dst []byte, list []V, value func([]byte, V) []byte) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = value(dst, v)
	}
	return append(dst, ']')
}

func appendStrings(dst []byte, list []string) []byte {
	return appendList(dst, list, appendJSONString[string])
}

func appendIntField(dst []byte, name string, v int64) []byte {
	dst = append(dst, name...)
	return strconv.AppendInt(dst, v, 10)
}

// orEmptyList and orEmptyTable make null what Java's readers expect: something
// to walk over.
func orEmptyList[V any](list []V) []V {
	if list == nil {
		return []V{}
	}
	return list
}

func orEmptyTable[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return m
}
