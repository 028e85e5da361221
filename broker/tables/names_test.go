package tables

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTopicNames(t *testing.T) {
	long := func(prefix string, n int) string { return prefix + strings.Repeat("x", n-len(prefix)) }
	for _, name := range []string{
		"T", "a-b_c%d|e", "0", "%RETRY%group", "%DLQ%group", DefaultTopic, HalfTopic,
		long("", 127), long(RetryPrefix, 255), long(DLQPrefix, 255),
	} {
		require.NoError(t, ValidateTopic(name), name)
	}
	for _, name := range []string{
		"", " ", "a b", "a.b", "a@b", "a/b", "..", "Größe", "a\x00", "a\n", "\xff",
		long("", 128), long(RetryPrefix, 256), long(DLQPrefix, 256),
	} {
		err := ValidateTopic(name)
		require.ErrorIs(t, err, ErrTopicName, "%q", name)
		require.Less(t, len(err.Error()), 400)
	}
}

func TestTopicsOfTheBrokerMayNotBeSentTo(t *testing.T) {
	for topic, forbidden := range map[string]bool{
		"SCHEDULE_TOPIC_XXXX": true, "RMQ_SYS_TRANS_HALF_TOPIC": true, "RMQ_SYS_TRANS_OP_HALF_TOPIC": true,
		"TRANS_CHECK_MAX_TIME_TOPIC": true, "SELF_TEST_TOPIC": true, "OFFSET_MOVED_EVENT": true,
		"TBW102": false, "BenchmarkTest": false, "T": false, "": false, "%RETRY%g": false,
	} {
		require.Equal(t, forbidden, ForbiddenToSend(topic), topic)
		require.Equal(t, forbidden, ForbiddenToSend([]byte(topic)), topic)
	}
	name := []byte("SCHEDULE_TOPIC_XXXX_and_a_name_longer_than_a_stack_buffer")
	require.Zero(t, testing.AllocsPerRun(100, func() { ForbiddenToSend(name) }))
}

func TestSystemTopics(t *testing.T) {
	for topic, system := range map[string]bool{
		"TBW102": true, "BenchmarkTest": true, "OFFSET_MOVED_EVENT": true, "rmq_sys_wheel_timer": true,
		"T": false, "%RETRY%g": false, "": false,
	} {
		require.Equal(t, system, IsSystemTopic(topic), topic)
	}
}
