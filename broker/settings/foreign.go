package settings

import (
	_ "embed"
	"maps"
	"slices"
	"strings"
)

// rocketMQKeys are the names of all settings of RocketMQ 4.9.7 and 5.5.0: what the setters of BrokerConfig,
// MessageStoreConfig, NettyServerConfig, NettyClientConfig, AuthConfig and the tiered store's configuration are called,
// and two that BrokerStartup reads by name. Sorted, one a line.
//
//go:embed known_keys.txt
var rocketMQKeys string

// isRocketMQKey tells whether RocketMQ has a setting of this name.
func isRocketMQKey(key string) bool {
	_, ok := slices.BinarySearch(strings.Fields(rocketMQKeys), key)
	return ok
}

// foreignRule is what to make of a setting that RocketMQ has and tandem has not.
type foreignRule struct {
	harmless func(value string) bool // such a value asks for nothing tandem does not do; nil: none
	stop     bool                    // any other value stops the start; false: it is named in the warning
	text     string                  // what the operator is told
}

// foreignRules covers the settings that need more than being named in the warning. Each stop changes what is safe or how
// the store is written; settings that only make RocketMQ faster, or that do something only beside one of these, are not here.
func foreignRules() map[string]foreignRule {
	rules := map[string]foreignRule{}
	off := func(key, why string) {
		rules[key] = foreignRule{harmless: isFalse, stop: true, text: why + wayOut(key+"=false")}
	}
	only := func(key, value, why string) {
		rules[key] = foreignRule{harmless: func(v string) bool { return v == value || v == "" }, stop: true, text: why + wayOut(key+"="+value)}
	}
	none := func(key, why string) {
		rules[key] = foreignRule{harmless: func(v string) bool { return v == "" }, stop: true, text: why + wayOut("no "+key)}
	}
	note := func(key, value, text string) {
		rules[key] = foreignRule{harmless: func(v string) bool { return v == value }, text: text}
	}

	// Who may do what. Ignored, they would leave a broker open that its owner believes closed.
	off("aclEnable", "tandem checks no permissions: every client would be let in")
	off("authenticationEnabled", "tandem asks nobody who he is: every client would be let in")
	off("authorizationEnabled", "tandem checks no permissions: every client would be let in")
	off("useTLS", "tandem's connections are not encrypted")

	// Other ways to replicate and to fail over. Ignored, there would be fewer copies, or another master, than the owner counts on.
	off("enableControllerMode", "tandem does not follow a controller: nobody would take over from a lost master")
	off("enableDLegerCommitLog", "tandem does not replicate by DLedger, whose log is another format")
	off("enableSlaveActingMaster", "a tandem slave does not act for a lost master")
	off("duplicationEnable", "tandem does not leave replication to another process") // it turns HA and its waiting off
	off("lockInStrictMode", "tandem locks queues for ordered consumers on one broker, not on the whole group")

	// Where the log is, and where else messages are. Ignored, stored messages would be missing.
	none("readOnlyCommitLogStorePaths", "tandem keeps its commit log in one directory: messages in the others would be missing")
	none("messageStorePlugIn", "tandem has no store plug-ins: messages that only the plug-in holds would be missing")
	only("storeType", "default", "tandem writes the file store only")

	// Other forms of records, queues and indexes. Ignored, RocketMQ would find a store it can't read, or tandem one.
	off("enableConsumeQueueExt", "tandem does not write extended consume queues, to which the queues' tags codes would point")
	off("enabledAppendPropCRC", "tandem does not append checksums to properties")
	off("forceVerifyPropCRC", "tandem does not append checksums to properties, and recovery would cut what has none")
	off("rocksdbCQDoubleWriteEnable", "tandem does not write consume queues in RocksDB, and they would fall behind")
	off("combineCQUseRocksdbForLmq", "tandem does not write consume queues in RocksDB")
	off("indexRocksDBEnable", "tandem does not write indexes in RocksDB")
	off("enableLmq", "tandem does not write light queues")
	off("enableMultiDispatch", "tandem does not write one message into several queues")

	// State that RocketMQ would keep in RocksDB instead of config/ and the log. Ignored, tandem would start without it.
	only("configManagerVersion", "v1", "topics, groups and offsets in RocksDB can't be read: tandem would start without them")
	off("useSingleRocksDBForAllConfigs", "topics, groups and offsets in RocksDB can't be read: tandem would start without them")
	off("transRocksDBEnable", "transactions in RocksDB can't be read")
	off("timerRocksDBEnable", "timed messages in RocksDB can't be read")
	off("popConsumerKVServiceEnable", "pop consumers' state in RocksDB can't be read")

	// Nothing unsafe, but said in words: the disk fills.
	note("fileReservedTime", "72", "nothing is deleted yet")
	note("deleteWhen", "04", "nothing is deleted yet")
	note("diskMaxUsedSpaceRatio", "75", "nothing is deleted yet")
	return rules
}

func wayOut(valid string) string { return "; tandem runs with " + valid + " only" }

// isFalse as Boolean.parseBoolean sees it, except that a typing error is not taken for "off".
func isFalse(value string) bool { return value == "" || strings.EqualFold(value, "false") }

func sortedKeys(m map[string]entry) []string { return slices.Sorted(maps.Keys(m)) }

// RocketMQKeys lists the names of all settings of RocketMQ, sorted. The slice is the caller's.
func RocketMQKeys() []string { return strings.Fields(rocketMQKeys) }
