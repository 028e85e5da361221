package tables

import (
	"fmt"
	"strings"
)

// Topics and prefixes with a meaning of their own (TopicValidator and MixAll of
// Apache RocketMQ).
const (
	// DefaultTopic is the topic others are created after, if it may be inherited from.
	DefaultTopic = "TBW102"
	// ScheduleTopic holds delayed messages, a queue per level.
	ScheduleTopic = "SCHEDULE_TOPIC_XXXX"
	// HalfTopic and OpHalfTopic hold prepared transactions and what became of them.
	HalfTopic   = "RMQ_SYS_TRANS_HALF_TOPIC"
	OpHalfTopic = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	// TransCheckMaxTimeTopic holds transactions nobody could decide on.
	TransCheckMaxTimeTopic = "TRANS_CHECK_MAX_TIME_TOPIC"
	// SelfTestTopic, BenchmarkTopic and OffsetMovedTopic exist on every broker.
	SelfTestTopic    = "SELF_TEST_TOPIC"
	BenchmarkTopic   = "BenchmarkTest"
	OffsetMovedTopic = "OFFSET_MOVED_EVENT"

	// RetryPrefix and DLQPrefix, before a group's name, are its retry topic
	// and the topic for what it could not consume.
	RetryPrefix = "%RETRY%"
	DLQPrefix   = "%DLQ%"

	systemTopicPrefix = "rmq_sys_"
	systemGroupPrefix = "CID_RMQ_SYS_"
	replyTopicSuffix  = "_REPLY_TOPIC"
)

// Lengths in bytes (a legal name is ASCII).
const (
	// MaxTopicLength is the longest name of an ordinary topic.
	MaxTopicLength = 127
	// MaxRetryTopicLength is the longest name of a retry or dead-letter topic,
	// and the most a record can hold.
	MaxRetryTopicLength = 255
	// MaxGroupLength is the longest name of a group.
	MaxGroupLength = 127
)

// ValidateTopic says whether name can be a topic's: one or more of letters,
// digits and %|_-, at most MaxTopicLength bytes (MaxRetryTopicLength for a retry
// or dead-letter topic). The error is an ErrTopicName whose text is fit for the
// client.
func ValidateTopic(name string) error {
	if name == "" {
		return fmt.Errorf("%w: the topic is empty", ErrTopicName)
	}
	limit := MaxTopicLength
	if strings.HasPrefix(name, RetryPrefix) || strings.HasPrefix(name, DLQPrefix) {
		limit = MaxRetryTopicLength
	}
	if len(name) > limit {
		return fmt.Errorf("%w: the topic %.32s… has %d bytes, %d are allowed", ErrTopicName, name, len(name), limit)
	}
	for _, c := range name {
		if !legalInName(c) {
			return fmt.Errorf("%w: the topic %q has %q in it, only letters, digits and %%|_- are allowed",
				ErrTopicName, name, c)
		}
	}
	return nil
}

func legalInName(c rune) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return c == '%' || c == '|' || c == '_' || c == '-'
	}
}

// ForbiddenToSend says whether clients may not send to the topic, because the
// broker alone writes there. It does not allocate.
func ForbiddenToSend[T ~string | ~[]byte](topic T) bool {
	switch string(topic) {
	case ScheduleTopic, HalfTopic, OpHalfTopic, TransCheckMaxTimeTopic, SelfTestTopic, OffsetMovedTopic:
		return true
	default:
		return false
	}
}

// IsSystemTopic says whether the topic belongs to the broker, so that nobody
// may create, change or delete it. The topics named after a cluster and a broker
// are not known here.
func IsSystemTopic(topic string) bool {
	switch topic {
	case DefaultTopic, BenchmarkTopic:
		return true
	default:
		return ForbiddenToSend(topic) || strings.HasPrefix(topic, systemTopicPrefix)
	}
}
