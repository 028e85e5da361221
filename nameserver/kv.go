package nameserver

import "maps"

// orderNamespace holds, per ordered topic, the text "broker:queues;…" that
// clients may use in place of the route.
const orderNamespace = "ORDER_TOPIC_CONFIG"

// kvTable is the free text that tools keep at the name server, by namespace and
// key. It is lost at a restart.
type kvTable map[string]map[string]string

func (t kvTable) put(namespace, key, value string) {
	if t[namespace] == nil {
		t[namespace] = map[string]string{}
	}
	t[namespace][key] = value
}

func (t kvTable) get(namespace, key string) (string, bool) {
	value, ok := t[namespace][key]
	return value, ok
}

func (t kvTable) delete(namespace, key string) { delete(t[namespace], key) }

// list returns a namespace: a copy, false if there never was one.
func (t kvTable) list(namespace string) (map[string]string, bool) {
	all, ok := t[namespace]
	return maps.Clone(all), ok
}
