package settings

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

func conf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "broker.conf")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func load(t *testing.T, text string, flags map[string]string) (*Settings, []Warning) {
	t.Helper()
	s, warnings, err := Load(conf(t, text), flags)
	require.NoError(t, err)
	return s, warnings
}

func TestDefaultsAreWhatOperatorsExpect(t *testing.T) {
	s := Defaults()
	require.NoError(t, s.Validate())
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, host, s.BrokerName)
	require.Equal(t, AsyncMaster, s.BrokerRole)
	require.EqualValues(t, 10911, s.ListenPort)
	require.EqualValues(t, 10912, s.HaListenPort)
	require.Equal(t, []string{"0.0.0.0:10911", "0.0.0.0:10909"}, s.ListenAddrs())
	require.EqualValues(t, 1<<30, s.MappedFileSizeCommitLog)
	require.Equal(t, 300000, s.ConsumeQueueUnits())
	require.EqualValues(t, 2000, s.SlaveTimeout)
	require.EqualValues(t, 2000, s.SyncFlushTimeout)
	require.True(t, s.SlaveReadEnable)
	require.Empty(t, s.NameServers())
	require.Len(t, s.DelayLevels(), 18)
	require.Equal(t, filepath.Join(s.StorePathRootDir, "commitlog"), s.StorePathCommitLog)
	require.False(t, s.IsSet("listenPort"))
}

func TestABrokerConfOfAPairIsReadAsJavaReadsIt(t *testing.T) {
	s, warnings := load(t, strings.Join([]string{
		"\xef\xbb\xbf# a pair, the slave \xe4\xb8\xad",
		"! another comment",
		"",
		"brokerClusterName = C",
		"  brokerName: b1\t",
		"brokerId 1",
		"brokerRole=SLAVE  \r",
		"listenPort=30911",
		"namesrvAddr=127.0.0.1:9876;\\",
		"    127.0.0.1:9877",
		`storePathRootDir=/tmp/a\u0062c/${HOME}\\x`,
		"brokerIP1=127.0.0.1",
		"slaveReadEnable=TRUE",
		"mappedFileSizeConsumeQueue=999",
		"aclEnable=false ",
		"brokerIP2=",
	}, "\n"), nil)
	require.Empty(t, warnings)
	require.Equal(t, "C", s.BrokerClusterName)
	require.Equal(t, "b1", s.BrokerName)
	require.EqualValues(t, 1, s.BrokerID)
	require.Equal(t, Slave, s.BrokerRole)
	require.EqualValues(t, 30912, s.HaListenPort)
	require.Equal(t, []string{"127.0.0.1:9876", "127.0.0.1:9877"}, s.NameServers())
	require.Equal(t, `/tmp/abc/${HOME}\x`, s.StorePathRootDir)
	require.Equal(t, `/tmp/abc/${HOME}\x/commitlog`, s.StorePathCommitLog)
	require.Equal(t, 1000, s.MappedFileSizeConsumeQueue)
	require.Equal(t, 50, s.ConsumeQueueUnits())
	require.Equal(t, "127.0.0.1", s.BrokerIP2, "a broker on loopback by its owner's word stays there wholly")
	host, err := s.StoreHost(30911)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1:30911", host.String())
}

func TestFlagsWinOverTheFileAndTheFileOverDefaults(t *testing.T) {
	s, _ := load(t, "listenPort=20911\nbrokerName=fromFile\nhaSlaveFallbehindMax=5\n",
		map[string]string{"listenPort": "30911", "haMaxGapNotInSync": "7"})
	require.EqualValues(t, 30911, s.ListenPort)
	require.EqualValues(t, 30912, s.HaListenPort)
	require.Equal(t, "fromFile", s.BrokerName)
	require.EqualValues(t, 7, s.HaMaxGapNotInSync)
	require.Equal(t, "DefaultCluster", s.BrokerClusterName)
	require.True(t, s.IsSet("listenPort"))
	require.True(t, s.IsSet("haMaxGapNotInSync"))
	require.False(t, s.IsSet("haListenPort"))
}

func TestDefaultsFollowTheSettingsTheyDependOn(t *testing.T) {
	tests := []struct{ name, text, key, want string }{
		{"the HA port is one above listenPort", "listenPort=20911", "haListenPort", "20912"},
		{"a given HA port stays", "listenPort=20911\nhaListenPort=5", "haListenPort", "5"},
		{"with a chosen listenPort the HA port is chosen too", "listenPort=0", "haListenPort", "0"},
		{"the log lies in the store", "storePathRootDir=/x", "storePathCommitLog", "/x/commitlog"},
		{"a given log directory stays", "storePathRootDir=/x\nstorePathCommitLog=/y", "storePathCommitLog", "/y"},
		{"the master's port is one below its HA port", "haMasterAddress=m:10912", "masterAddr", "m:10911"},
		{"a given master address stays", "haMasterAddress=m:10912\nmasterAddr=n:1", "masterAddr", "n:1"},
		{"a public brokerIP1 does not move the slaves", "brokerIP1=8.8.8.8", "brokerIP2", ownAddress()},
		{"a master is 0", "brokerId=3", "brokerId", "0"},
		{"registrations are neither rarer than a minute", "registerNameServerPeriod=90000", "registerNameServerPeriod", "60000"},
		{"nor more often than each 10 s", "registerNameServerPeriod=1", "registerNameServerPeriod", "10000"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := load(t, tt.text, nil)
			got, ok := s.Get(tt.key)
			require.True(t, ok)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestABadFileIsRefusedWithKeyValueFileLineAndTheWayOut(t *testing.T) {
	tests := []struct {
		name, text string
		flags      map[string]string
		reason     error
		want       string // after the file's directory
	}{
		{"unknown key", "# x\nbrokerNmae=b", nil, ErrUnknownKey, "broker.conf:2: brokerNmae=b: neither tandem nor RocketMQ has a setting of this name; is brokerName meant?"},
		{"unknown key, nothing near", "colour=red", nil, ErrUnknownKey, "broker.conf:1: colour=red: neither tandem nor RocketMQ has a setting of this name; tandem broker --help lists those there are"},
		{"unknown flag", "", map[string]string{"ListenPort": "1"}, ErrUnknownKey, "--ListenPort=1: neither tandem nor RocketMQ has a setting of this name; is listenPort meant?"},
		{"not a number", "\n\nlistenPort=http", nil, ErrBadValue, "broker.conf:3: listenPort=http: not valid; valid: a whole number from 0 to 65535"},
		{"out of range", "slaveTimeout=0", nil, ErrBadValue, "broker.conf:1: slaveTimeout=0: not valid; valid: a whole number from 1 to 3600000 (ms)"},
		{"too large for any number", "haMaxGapNotInSync=99999999999999999999", nil, ErrBadValue, "broker.conf:1: haMaxGapNotInSync=99999999999999999999: not valid; valid: a whole number from 1 to 9223372036854775807 (bytes)"},
		{"bad value under an older name", "haSlaveFallbehindMax=x", nil, ErrBadValue, "broker.conf:1: haSlaveFallbehindMax=x: not valid; valid: a whole number from 1 to 9223372036854775807 (bytes)"},
		{"not a role", "brokerRole=MASTER", nil, ErrBadValue, "broker.conf:1: brokerRole=MASTER: not valid; valid: ASYNC_MASTER, SYNC_MASTER or SLAVE"},
		{"not a switch", "autoCreateTopicEnable=yes", nil, ErrBadValue, "broker.conf:1: autoCreateTopicEnable=yes: not valid; valid: true or false"},
		{"no switch at all", "autoCreateTopicEnable", nil, ErrBadValue, "broker.conf:1: autoCreateTopicEnable=: not valid; valid: true or false"},
		{"name server without a port", "namesrvAddr=a:1;b", nil, ErrBadValue, "broker.conf:1: namesrvAddr=a:1;b: not valid; valid: host:port;host:port"},
		{"a flag's bad value", "brokerRole=SLAVE\nbrokerId=1", map[string]string{"haJoinFrom": "first"}, ErrBadValue, "--haJoinFrom=first: not valid; valid: last or oldest"},
		{"delay levels", "messageDelayLevel=1s 2x", nil, ErrBadValue, `broker.conf:1: messageDelayLevel=1s 2x: not valid; valid: blank-separated times such as "1s 5m 2h 1d"`},
		{"several log directories", "storePathCommitLog=/a,/b", nil, ErrBadValue, "broker.conf:1: storePathCommitLog=/a,/b: not valid; valid: one directory"},
		{"slave without an id", "brokerRole=SLAVE\nbrokerName=b1", nil, ErrBadValue, "brokerId=0: a SLAVE needs a brokerId above 0, one that no other slave of b1 has"},
		{"slave with a master's id", "brokerRole=SLAVE\nbrokerId=0\nbrokerName=b1", nil, ErrBadValue, "broker.conf:2: brokerId=0: a SLAVE needs a brokerId above 0, one that no other slave of b1 has"},
		{"one port twice", "listenPort=20911\nhaListenPort=20909", nil, ErrBadValue, "broker.conf:2: haListenPort=20909: clients are served on this port: listenPort is 20911, and listenPort-2 is served too"},
		{"no room for the VIP port", "listenPort=2", nil, ErrBadValue, "broker.conf:1: listenPort=2: not valid; valid: 0, or 3 to 65534, since listenPort-2 is served too"},
		{"an embedded name server on the HA port", "embeddedNamesrvPort=10912", nil, ErrBadValue, "broker.conf:1: embeddedNamesrvPort=10912: the broker itself uses this port for listenPort, listenPort-2 or haListenPort"},
		{"less than the least copies", "inSyncReplicas=2\nminInSyncReplicas=3", nil, ErrBadValue, "broker.conf:2: minInSyncReplicas=3: more than inSyncReplicas=2"},
		{"heartbeats rarer than the peer's patience", "haHousekeepingInterval=5000", nil, ErrBadValue, "broker.conf:1: haHousekeepingInterval=5000: must be above haSendHeartbeatInterval=5000, or idle connections are given up"},
		{"access control", "\naclEnable=true", nil, ErrUnsupported, "broker.conf:2: aclEnable=true: tandem checks no permissions: every client would be let in; tandem runs with aclEnable=false only"},
		{"access control, mistyped", "aclEnable=ture", nil, ErrUnsupported, "broker.conf:1: aclEnable=ture: tandem checks no permissions: every client would be let in; tandem runs with aclEnable=false only"},
		{"RocksDB", "storeType=defaultRocksDB", nil, ErrUnsupported, "broker.conf:1: storeType=defaultRocksDB: tandem writes the file store only; tandem runs with storeType=default only"},
		{"a controller by flag", "", map[string]string{"enableControllerMode": "true"}, ErrUnsupported, "--enableControllerMode=true: tandem does not follow a controller: nobody would take over from a lost master; tandem runs with enableControllerMode=false only"},
		{"read-only log directories", "readOnlyCommitLogStorePaths=/old", nil, ErrUnsupported, "broker.conf:1: readOnlyCommitLogStorePaths=/old: tandem keeps its commit log in one directory: messages in the others would be missing; tandem runs with no readOnlyCommitLogStorePaths only"},
		{"no key", "brokerName=b\n=5", nil, ErrSyntax, `broker.conf:2: unreadable line: "=5" has no key; key=value is expected`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := conf(t, tt.text)
			s, warnings, err := Load(path, tt.flags)
			require.ErrorIs(t, err, tt.reason)
			require.Nil(t, s)
			require.Nil(t, warnings)
			require.Equal(t, tt.want, strings.ReplaceAll(err.Error(), filepath.Dir(path)+"/", ""))
			for _, other := range []error{ErrUnknownKey, ErrBadValue, ErrUnsupported, ErrSyntax} {
				require.Equal(t, other == tt.reason, errors.Is(err, other))
			}
		})
	}
}

func TestAnEscapeThatCannotBeReadNamesItsLine(t *testing.T) {
	path := conf(t, "brokerName=b\nbrokerClusterName=\\u00zz")
	_, _, err := Load(path, nil)
	require.ErrorIs(t, err, ErrSyntax)
	require.ErrorContains(t, err, path+":2: ")
}

func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	_, _, err := Load(conf(t, "listenPort=x\naclEnable=true\nbrokerNmae=y"), nil)
	require.Len(t, strings.Split(err.Error(), "\n"), 3)
	require.ErrorIs(t, err, ErrBadValue)
	require.ErrorIs(t, err, ErrUnsupported)
	require.ErrorIs(t, err, ErrUnknownKey)
}

func TestAMissingFileIsNamed(t *testing.T) {
	_, _, err := Load("/no/such/broker.conf", nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "configuration file: open /no/such/broker.conf")
}

func TestEachSettingThatMayNotBeIgnoredStopsAndItsHarmlessValueDoesNot(t *testing.T) {
	harmless := map[string]string{"storeType": "default", "configManagerVersion": "v1",
		"readOnlyCommitLogStorePaths": "", "messageStorePlugIn": ""}
	for key, rule := range foreignRules() {
		if !rule.stop {
			continue
		}
		_, _, err := Load(conf(t, key+"=true"), nil)
		require.ErrorIs(t, err, ErrUnsupported, key)
		value, special := harmless[key]
		if !special {
			value = "false"
		}
		_, warnings := load(t, key+"="+value, nil)
		require.Empty(t, warnings, key)
	}
}

func TestSettingsThatOnlyRocketMQHasAreNamedInOneWarning(t *testing.T) {
	_, warnings := load(t, strings.Join([]string{
		"warmMapedFileEnable=true", "fileReservedTime=48", "deleteWhen=04", "diskMaxUsedSpaceRatio=75",
		"transientStorePoolEnable=true", "innerClientAuthenticationCredentials=secret",
	}, "\n"), nil)
	require.Len(t, warnings, 1)
	require.Equal(t, "settings of RocketMQ that have no effect in tandem: fileReservedTime (nothing is deleted yet), "+
		"innerClientAuthenticationCredentials, transientStorePoolEnable, warmMapedFileEnable", warnings[0].String())
	require.Equal(t, []string{"fileReservedTime", "innerClientAuthenticationCredentials", "transientStorePoolEnable", "warmMapedFileEnable"}, warnings[0].Keys)
}

func TestValuesThatAreMaybeNotMeantAreWarnedOf(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"SYNC_MASTER that does not wait", "brokerRole=SYNC_MASTER\ninSyncReplicas=1", "inSyncReplicas=1 turns SYNC_MASTER's waiting off"},
		{"ASYNC_MASTER that is to wait", "inSyncReplicas=2", "inSyncReplicas=2 has no effect: only a SYNC_MASTER waits"},
		{"more copies than there are", "brokerRole=SYNC_MASTER\ninSyncReplicas=3\ntotalReplicas=2", "a send waits for 3 copies and totalReplicas=2"},
		{"a master's id", "brokerId=2", "brokerId=2 has no effect: a master is 0"},
		{"larger than a frame", "maxMessageSize=67108864", "a request of more than 16777216 bytes is refused before that"},
		{"given twice", "brokerName=a\n\nbrokerName=b", "brokerName is given on lines 1 and 3; the latter counts"},
		{"given under two names", "haMaxGapNotInSync=1\nhaSlaveFallbehindMax=2", "haMaxGapNotInSync is given on lines 1 and 2; the latter counts"},
		{"registration too rare", "registerNameServerPeriod=90000", "registerNameServerPeriod=90000 is held within 10000 and 60000: 60000 counts"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, warnings := load(t, tt.text, nil)
			require.Len(t, warnings, 1)
			require.Contains(t, warnings[0].Text, tt.want)
		})
	}
}

func TestTheRuleOfASyncMasterIsAtLeastOneSlaveUnlessSwitchedOffByName(t *testing.T) {
	tests := []struct {
		text   string
		copies int
		rule   string
	}{
		{"brokerRole=ASYNC_MASTER", 1, "ASYNC_MASTER: a send is OK once it is in the master's log; slaves follow behind"},
		{"brokerRole=SYNC_MASTER", 2, "1 slave(s) have it (2 copies), within 2000 ms"},
		{"brokerRole=SYNC_MASTER\ninSyncReplicas=3", 3, "2 slave(s) have it (3 copies), within 2000 ms"},
		{"brokerRole=SYNC_MASTER\ninSyncReplicas=1", 1, "it waits for NO slave"},
		{"brokerRole=SYNC_MASTER\nflushDiskType=SYNC_FLUSH", 2, "in the master's log, flushed to disk"},
		{"brokerRole=SLAVE\nbrokerId=1\ninSyncReplicas=3", 1, "takes no sends"},
	}
	for _, tt := range tests {
		s, _ := load(t, tt.text, nil)
		require.Equal(t, tt.copies, s.NeededReplicas(), tt.text)
		require.Contains(t, s.ReplicationRule(), tt.rule, tt.text)
	}
}

func TestSetChangesOneSettingAndWhatFollowsFromIt(t *testing.T) {
	s := Defaults()
	require.NoError(t, s.Set("listenPort", " 20911 "))
	require.EqualValues(t, 20912, s.HaListenPort)
	require.NoError(t, s.Set("haListenPort", "5"))
	require.NoError(t, s.Set("listenPort", "30911"))
	require.EqualValues(t, 5, s.HaListenPort)

	before := s
	require.ErrorIs(t, s.Set("listenPort", "x"), ErrBadValue)
	require.ErrorIs(t, s.Set("listenprot", "1"), ErrUnknownKey)
	require.ErrorIs(t, s.Set("fileReservedTime", "1"), ErrUnsupported)
	require.Equal(t, before, s, "a refused change changes nothing")

	require.NoError(t, s.Set("namesrvAddr", "a:1"))
	require.NoError(t, s.Set("namesrvAddr", ""))
	require.Empty(t, s.NameServers())
	require.False(t, s.IsSet("namesrvAddr"))

	_, ok := s.Get("fileReservedTime")
	require.False(t, ok)
}

func TestACopyOfSettingsIsItsOwn(t *testing.T) {
	a := Defaults()
	b := a
	require.NoError(t, b.Set("haListenPort", "5"))
	require.False(t, a.IsSet("haListenPort"))
	require.EqualValues(t, 10912, a.HaListenPort)
}

func TestValidateFindsFieldsThatWereAssignedBadly(t *testing.T) {
	s := Defaults()
	s.BrokerRole = "LEADER"
	s.HardOutputBytes = 1
	s.BrokerIP1 = "a b"
	err := s.Validate()
	require.ErrorIs(t, err, ErrBadValue)
	require.ErrorContains(t, err, "brokerRole=LEADER: not valid; valid: ASYNC_MASTER, SYNC_MASTER or SLAVE")
	require.ErrorContains(t, err, "hardOutputBytes=1: less than softOutputBytes=1048576")
	require.ErrorContains(t, err, "brokerIP1=a b: ")
}

// javaEscape writes a value so that a properties file gives it back.
func javaEscape(v string) string {
	return strings.NewReplacer(`\`, `\\`, "=", `\=`, ":", `\:`, "#", `\#`, "!", `\!`).Replace(v)
}

func TestEffectiveSettingsLoadedAgainAreTheSame(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		s := Defaults()
		for _, d := range Table() {
			if rapid.Bool().Draw(t, d.Key+" given") {
				require.NoError(t, s.Set(d.Key, drawValue(t, d)))
			}
		}
		if s.Validate() != nil {
			t.Skip("contradicting values")
		}
		var text strings.Builder
		for _, kv := range s.Effective() {
			text.WriteString(kv.Key + "=" + javaEscape(kv.Value) + "\n")
		}
		path := filepath.Join(dir, "effective.conf")
		require.NoError(t, os.WriteFile(path, []byte(text.String()), 0o644))
		again, _, err := Load(path, nil)
		require.NoError(t, err)
		held := s
		held.RegisterNameServerPeriod = again.RegisterNameServerPeriod // held within its bounds when loaded
		require.Equal(t, held.Effective(), again.Effective())
	})
}

func drawValue(t *rapid.T, d Setting) string {
	switch d.Kind {
	case KindBool:
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, d.Key)
	case KindEnum:
		return rapid.SampledFrom(d.Values).Draw(t, d.Key)
	case KindString:
		return map[string]string{"bindAddress": "127.0.0.1", "namesrvAddr": "a:1;b:2", "haMasterAddress": "m:3", "masterAddr": "[::1]:4",
			"messageDelayLevel": "1s 1d", "storePathCommitLog": `/c:=\#! x`}[d.Key]
	default:
		return formatInt(rapid.Int64Range(d.Min, d.Max).Draw(t, d.Key))
	}
}

func FuzzParseFile(f *testing.F) {
	for _, seed := range []string{"a=b", "a = b\\\n c", "# x\n\n=", "a\\=b:c", "\\", "a=\\u0041", "a\r\nb\rc", "\xef\xbb\xbfa=\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		entries, err := parseFile("f", raw)
		if err != nil {
			require.ErrorIs(t, err, ErrSyntax)
			return
		}
		for _, e := range entries {
			require.NotEmpty(t, e.key)
			require.Equal(t, e.value, strings.TrimSpace(e.value))
		}
	})
}

func TestOddValuesOfAPropertiesFileAreTakenLiterally(t *testing.T) {
	tests := []struct{ name, text, key, want string }{
		{"an escaped backslash at the end does not continue the line", "storePathRootDir=/x\\\\\nbrokerName=b", "storePathRootDir", `/x\`},
		{"a reference to itself is text", "storePathRootDir=/${storePathRootDir}", "storePathRootDir", "/${storePathRootDir}"},
		{"a continued comment is one line", "#x\\\nbrokerName=b", "brokerName", "b"},
		{"a later equals sign belongs to the value", "brokerName=a=b", "brokerName", "a=b"},
		{"an escaped separator belongs to the key's value", "brokerName a\\:b", "brokerName", "a:b"},
		{"a bare carriage return ends a line", "brokerName=b\rlistenPort=20911", "listenPort", "20911"},
		{"a continued line keeps its blanks inside", "messageDelayLevel=1s \\\r\n   2s", "messageDelayLevel", "1s 2s"},
		{"a backslash at the file's end is dropped", "brokerName=b\\", "brokerName", "b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, warnings := load(t, tt.text, nil)
			require.Empty(t, warnings)
			got, _ := s.Get(tt.key)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestAFileWithAllOfRocketMQsDefaultsStarts(t *testing.T) {
	for _, version := range []string{"5.5.0", "4.9.7"} {
		s, warnings, err := Load("testdata/rocketmq-"+version+"-defaults.conf", nil)
		require.NoError(t, err, version)
		require.NoError(t, s.Validate(), version)
		require.NotEmpty(t, warnings, version)
	}
}
