package tables

import (
	"maps"
	"strings"

	"tandem/codec"
)

const topicsFile = "topics.json"

const singleTag = "SINGLE_TAG"

// Topics is the table of topics. See the package comment for goroutine rules.
type Topics struct {
	table[codec.TopicConfig]
	builtin []codec.TopicConfig
}

// NewTopics returns the table with only the built-in topics in it.
func NewTopics(files Files, builtin []codec.TopicConfig) *Topics {
	t := &Topics{builtin: builtin}
	t.init(files)
	t.setLoaded(t.builtinTable(), nil)
	return t
}

func (t *Topics) builtinTable() map[string]codec.TopicConfig {
	all := make(map[string]codec.TopicConfig, len(t.builtin))
	for _, cfg := range t.builtin {
		all[cfg.TopicName] = normalTopic(cfg.TopicName, cfg)
	}
	return all
}

// Load takes the topics of topics.json over the built-in ones. No file is no
// error: the table then is what NewTopics made. The error is ErrDamaged.
func (t *Topics) Load() error {
	from, err := load[codec.TopicConfigs](t.files, topicsFile)
	if err != nil || from == nil {
		return err
	}
	t.setLoaded(normalTopics(from.TopicConfigTable), &from.DataVersion)
	return nil
}

// Get returns a topic's configuration. It takes no lock and does not allocate.
func (t *Topics) Get(name string) (codec.TopicConfig, bool) { return t.get(name) }

// Find is Get for a name that still lies in a frame.
func (t *Topics) Find(name []byte) (codec.TopicConfig, bool) { return t.getBytes(name) }

// Put adds or replaces a topic. If that changes anything the data version is
// raised, and the master's broker should persist and register at once.
func (t *Topics) Put(cfg codec.TopicConfig) (changed bool) {
	return t.put(cfg.TopicName, normalTopic(cfg.TopicName, cfg))
}

// Delete removes a topic and says whether it was there.
func (t *Topics) Delete(name string) bool { return t.delete(name) }

// DataVersion returns the version of the table as it stands.
func (t *Topics) DataVersion() codec.DataVersion { return t.dataVersion() }

// Snapshot returns the whole table as of one moment, for registrations and
// slaves. It has no mapping fields: see TopicConfigs.WithMapping.
func (t *Topics) Snapshot() codec.TopicConfigs {
	all, version := t.snapshot()
	return topicConfigs(all, version)
}

// Replace makes the table equal to the master's and stores its data version as
// it is. It returns the names by what became of them, and whether there is
// anything to persist. A table without topics changes nothing, nor does one that
// was taken before (equal versions, and no change of our own since).
// A topic that both tables have is never missing for a reader.
func (t *Topics) Replace(from codec.TopicConfigs) (added, changed, removed []string, dirty bool) {
	d := t.replace(normalTopics(from.TopicConfigTable), from.DataVersion)
	return d.added, d.changed, d.removed, d.dirty
}

// EnsureBuiltin puts back built-in topics that are missing, as they can be
// after Replace, and returns their names. For a slave that becomes the master.
func (t *Topics) EnsureBuiltin() (added []string) {
	for _, cfg := range t.builtin {
		if _, created := t.Ensure(cfg); created {
			added = append(added, cfg.TopicName)
		}
	}
	return added
}

// Ensure returns the topic of cfg's name, creating it as cfg says if there is
// none. Retry and dead-letter topics come to be like this.
func (t *Topics) Ensure(cfg codec.TopicConfig) (got codec.TopicConfig, created bool) {
	got, created, _ = t.ensure(cfg.TopicName, func() (codec.TopicConfig, bool) {
		return normalTopic(cfg.TopicName, cfg), true
	})
	return got, created
}

// CreateRules are the broker's part in the creation of a topic by a send.
type CreateRules struct {
	// AutoCreate is autoCreateTopicEnable. False closes TBW102 as a model;
	// another default topic that may be inherited from still serves as one.
	AutoCreate bool
	// SysFlag goes into the new topic (1: unit, 2: unit subscription).
	SysFlag int32
}

// EnsureDefault returns the topic a client sends to, creating it if there is
// none: after defaultTopic if that has the inherit bit, with min(defaultQueueNums,
// defaultTopic's write queues) queues and its permission without the inherit bit;
// a client that asks for no queues at all gets as many as defaultTopic has. Failing
// that, a retry topic is created with one queue. ok is false if there is no such
// topic and none may be created. The name is not checked: see ValidateTopic.
func (t *Topics) EnsureDefault(name, defaultTopic string, defaultQueueNums int32, r CreateRules,
) (cfg codec.TopicConfig, created, ok bool) {
	return t.ensure(name, func() (codec.TopicConfig, bool) {
		if cfg, ok := t.inherited(name, defaultTopic, defaultQueueNums, r); ok {
			return cfg, true
		}
		if strings.HasPrefix(name, RetryPrefix) {
			return plainTopic(name, 1, codec.PermRead|codec.PermWrite, r.SysFlag), true
		}
		return codec.TopicConfig{}, false
	})
}

func (t *Topics) inherited(name, defaultTopic string, queues int32, r CreateRules) (codec.TopicConfig, bool) {
	model, ok := t.get(defaultTopic)
	if !ok || model.Perm&codec.PermInherit == 0 || defaultTopic == DefaultTopic && !r.AutoCreate {
		return codec.TopicConfig{}, false
	}
	if queues <= 0 || queues > model.WriteQueueNums {
		queues = model.WriteQueueNums
	}
	cfg := plainTopic(name, queues, model.Perm&^codec.PermInherit, r.SysFlag)
	cfg.TopicFilterType = model.TopicFilterType
	return cfg, true
}

// Persist writes topics.json if anything changed since it was last written.
func (t *Topics) Persist() error {
	return t.persist(func(all map[string]codec.TopicConfig, version codec.DataVersion) error {
		return t.files.save(topicsFile, topicConfigs(all, version))
	})
}

func topicConfigs(all map[string]codec.TopicConfig, version codec.DataVersion) codec.TopicConfigs {
	return codec.TopicConfigs{DataVersion: version, TopicConfigTable: all}
}

func plainTopic(name string, queues, perm, sysFlag int32) codec.TopicConfig {
	return codec.TopicConfig{
		TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: perm,
		TopicFilterType: singleTag, TopicSysFlag: sysFlag,
	}
}

func normalTopics(from map[string]codec.TopicConfig) map[string]codec.TopicConfig {
	all := make(map[string]codec.TopicConfig, len(from))
	for name, cfg := range from {
		all[name] = normalTopic(name, cfg)
	}
	return all
}

// normalTopic fills in what a sender may leave out and takes cfg's map away
// from the caller.
func normalTopic(name string, cfg codec.TopicConfig) codec.TopicConfig {
	cfg.TopicName = name
	if cfg.TopicFilterType == "" {
		cfg.TopicFilterType = singleTag
	}
	if len(cfg.Attributes) == 0 {
		cfg.Attributes = nil
	}
	cfg.Attributes = maps.Clone(cfg.Attributes)
	return cfg
}

// BuiltinTopics returns the topics every broker has, with Apache RocketMQ's
// queue numbers and permissions: those of its own workings and those named
// after the cluster and the broker. A broker that creates no topics by itself
// leaves TBW102 out.
func BuiltinTopics(cluster, brokerName string) []codec.TopicConfig {
	const readWrite, inheritable = codec.PermRead | codec.PermWrite, codec.PermRead | codec.PermWrite | codec.PermInherit
	return []codec.TopicConfig{
		plainTopic(SelfTestTopic, 1, readWrite, 0),
		plainTopic(DefaultTopic, 8, inheritable, 0),
		plainTopic(BenchmarkTopic, 1024, readWrite, 0),
		plainTopic(cluster, 16, inheritable, 0),
		plainTopic(brokerName, 1, inheritable, 0),
		plainTopic(OffsetMovedTopic, 1, readWrite, 0),
		plainTopic(ScheduleTopic, 18, readWrite, 0),
		plainTopic(cluster+replyTopicSuffix, 1, readWrite, 0),
		plainTopic(HalfTopic, 1, readWrite, 0),
		plainTopic(OpHalfTopic, 1, readWrite, 0),
	}
}
