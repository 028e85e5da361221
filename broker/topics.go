package broker

import (
	"go.uber.org/zap"

	"tandem/broker/tables"
	"tandem/codec"
)

// slaveTables is why a slave's tables are not changed there.
const slaveTables = "topics and groups of a slave are its master's: change them there"

func (b *Broker) updateTopic(r *request) answer {
	if b.isSlave() {
		return failed(codec.SystemError, slaveTables)
	}
	cfg := codec.TopicConfig{TopicName: r.text("topic"), TopicFilterType: r.text("topicFilterType"), Order: r.text("order") == "true"}
	if err := tables.ValidateTopic(cfg.TopicName); err != nil {
		return failed(codec.InvalidParameter, err.Error())
	}
	if tables.IsSystemTopic(cfg.TopicName) || cfg.TopicName == b.set.BrokerClusterName {
		return failed(codec.InvalidParameter, "topic "+cfg.TopicName+" is the broker's own and cannot be changed")
	}
	fields := []struct {
		name     string
		to       *int32
		min, max int32
	}{{"readQueueNums", &cfg.ReadQueueNums, 0, maxQueues}, {"writeQueueNums", &cfg.WriteQueueNums, 0, maxQueues}, {"perm", &cfg.Perm, 0, 15}}
	for _, f := range fields {
		n, isNumber := r.int32(f.name)
		if !isNumber || n < f.min || n > f.max {
			return missingField(r, f.name)
		}
		*f.to = n
	}
	if n, isNumber := r.int32("topicSysFlag"); isNumber {
		cfg.TopicSysFlag = n
	}
	if cfg.TopicFilterType == "" {
		cfg.TopicFilterType = "SINGLE_TAG"
	}
	if b.topics.Put(cfg) {
		b.log.Info("topic changed", zap.String("topic", cfg.TopicName), zap.Int32("readQueues", cfg.ReadQueueNums),
			zap.Int32("writeQueues", cfg.WriteQueueNums), zap.Int32("perm", cfg.Perm))
		b.topicsChanged()
	}
	return savedAnswer(b.topics.Persist())
}

// maxQueues bounds a topic's queues.
const maxQueues = 65536

func savedAnswer(err error) answer {
	if err != nil {
		return failed(codec.SystemError, "changed in memory, but not saved: "+err.Error())
	}
	return ok()
}

// deleteTopic removes a topic with its queues and all groups' progress in it.
func (b *Broker) deleteTopic(r *request) answer {
	if b.isSlave() {
		return failed(codec.SystemError, slaveTables)
	}
	topic := r.text("topic")
	if topic == "" {
		return missingField(r, "topic")
	}
	if tables.IsSystemTopic(topic) || topic == b.set.BrokerClusterName {
		return failed(codec.InvalidParameter, "topic "+topic+" is the broker's own and cannot be deleted")
	}
	if !b.topics.Delete(topic) {
		return ok()
	}
	b.topicsChanged()
	b.offsets.DeleteTopic(topic)
	b.log.Info("topic deleted", zap.String("topic", topic))
	err := b.store.DeleteTopic(topic)
	b.topicsChanged() // again: a send meanwhile may have made the topic anew, over queues that are gone now
	b.holds.wakeTopic(topic)
	if err != nil {
		return failed(codec.SystemError, "the topic is deleted, its queue files are not: "+err.Error())
	}
	return savedAnswer(b.persist())
}

func (b *Broker) allTopics(r *request) answer {
	all := b.topics.Snapshot().WithMapping()
	a := okJSON(all)
	a.ext = map[string]string{"totalTopicNum": itoa(int64(len(all.TopicConfigTable)))}
	return a
}

func (b *Broker) topicConfig(r *request) answer {
	cfg, known := b.topics.Get(r.text("topic"))
	if !known {
		return failed(codec.TopicNotExist, "topic "+r.text("topic")+" does not exist on broker "+b.set.BrokerName)
	}
	return okJSON(cfg)
}

func (b *Broker) updateGroup(r *request) answer {
	if b.isSlave() {
		return failed(codec.SystemError, slaveTables)
	}
	var cfg codec.SubscriptionGroup
	if err := codec.Unmarshal(r.cmd.Body, &cfg); err != nil {
		return failed(codec.SystemError, "the group cannot be read: "+err.Error())
	}
	if err := tables.ValidateTopic(cfg.GroupName); err != nil {
		return failed(codec.InvalidParameter, "the group's name: "+err.Error())
	}
	if b.groups.Put(cfg) {
		b.log.Info("group changed", zap.String("group", cfg.GroupName))
	}
	return savedAnswer(b.groups.Persist())
}

func (b *Broker) deleteGroup(r *request) answer {
	if b.isSlave() {
		return failed(codec.SystemError, slaveTables)
	}
	group := r.text("groupName")
	if group == "" {
		return missingField(r, "groupName")
	}
	if b.groups.Delete(group) {
		b.log.Info("group deleted", zap.String("group", group))
	}
	if r.text("cleanOffset") == "true" {
		b.offsets.DeleteGroup(group)
	}
	return savedAnswer(b.persist())
}

func (b *Broker) allGroups(*request) answer {
	all := b.groups.Snapshot()
	a := okJSON(all)
	a.ext = map[string]string{"totalGroupNum": itoa(int64(len(all.SubscriptionGroupTable)))}
	return a
}

func (b *Broker) allRequestModes(*request) answer {
	return answer{body: []byte(`{"messageRequestModeMap":{}}`)}
}
