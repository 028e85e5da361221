package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Defaults are the settings of a broker that was given none.
func Defaults() Settings {
	var s Settings
	for _, d := range described() {
		if valid := d.parse(&s, d.Default); valid != "" {
			panic("BUG: settings: default of " + d.Key + " is not valid")
		}
	}
	s.resolve()
	return s
}

// Load reads a Java properties file (none where path is empty) and lays overrides (flags: key to value) over it. It
// returns either settings that are valid, with what the operator should be told, or every fault it found, one a line;
// errors.Is tells [ErrUnknownKey], [ErrBadValue], [ErrUnsupported] and [ErrSyntax] apart.
func Load(path string, overrides map[string]string) (*Settings, []Warning, error) {
	var entries []entry
	if path != "" {
		var err error
		if entries, err = readFile(path); err != nil {
			return nil, nil, err
		}
	}
	l := loader{settings: Defaults()}
	for _, e := range append(entries, flagEntries(overrides)...) {
		l.take(e)
	}
	return l.finish()
}

func flagEntries(overrides map[string]string) []entry {
	var entries []entry
	for key, value := range overrides {
		entries = append(entries, entry{key: key, value: strings.TrimSpace(value), origin: Origin{Flag: true}})
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	return entries
}

// loader gathers entries; later ones win.
type loader struct {
	settings Settings
	origins  map[string]Origin // of tandem's settings, by key
	foreign  map[string]entry  // RocketMQ's settings that tandem does not have: the last of each
	warnings []Warning
	faults   []error
}

func (l *loader) take(e entry) {
	setting, ok := lookup(e.key)
	if !ok {
		l.takeForeign(e)
		return
	}
	if before, twice := l.origins[setting.Key]; twice && before.File == e.origin.File {
		l.warn(fmt.Sprintf("%s: %s is given on lines %d and %d; the latter counts", before.File, setting.Key, before.Line, e.origin.Line), setting.Key)
	}
	if l.origins == nil {
		l.origins = map[string]Origin{}
	}
	l.origins[setting.Key] = e.origin
	if valid := setting.parse(&l.settings, e.value); valid != "" {
		l.faults = append(l.faults, badValue(e.key, e.value, e.origin, "not valid; valid: "+valid))
		return
	}
	l.settings.explicit[setting.index] = e.value != ""
}

func (l *loader) takeForeign(e entry) {
	if !isRocketMQKey(e.key) {
		l.faults = append(l.faults, unknownKey(e.key, e.value, e.origin))
		return
	}
	if l.foreign == nil {
		l.foreign = map[string]entry{}
	}
	l.foreign[e.key] = e
}

func (l *loader) finish() (*Settings, []Warning, error) {
	given := l.settings.BrokerID
	l.settings.resolve()
	l.judgeForeign()
	if len(l.faults) == 0 { // a faulty value would only cause more of them
		l.faults = append(l.faults, l.settings.contradictions(l.origins)...)
	}
	if len(l.faults) > 0 {
		return nil, nil, errors.Join(l.faults...)
	}
	if given != l.settings.BrokerID {
		l.warn(fmt.Sprintf("brokerId=%d has no effect: a master is 0", given), "brokerId")
	}
	l.hints()
	return &l.settings, l.warnings, nil
}

// judgeForeign stops at settings that may not be ignored and names the others in one warning.
func (l *loader) judgeForeign() {
	var ignored, named []string
	rules := foreignRules()
	for _, key := range sortedKeys(l.foreign) {
		e := l.foreign[key]
		rule := rules[key]
		switch {
		case rule.harmless != nil && rule.harmless(e.value):
		case rule.stop:
			l.faults = append(l.faults, &Error{Key: key, Value: e.value, Origin: e.origin, Reason: ErrUnsupported, Text: rule.text})
		default:
			ignored = append(ignored, key)
			if rule.text != "" {
				key += " (" + rule.text + ")"
			}
			named = append(named, key)
		}
	}
	if len(ignored) > 0 {
		l.warn("settings of RocketMQ that have no effect in tandem: "+strings.Join(named, ", "), ignored...)
	}
}

// hints are about values that are valid and maybe not meant.
func (l *loader) hints() {
	s := &l.settings
	if s.BrokerRole == SyncMaster && s.InSyncReplicas == 1 {
		l.warn("inSyncReplicas=1 turns SYNC_MASTER's waiting off: a send is answered OK without any slave having it", "inSyncReplicas")
	}
	if s.BrokerRole == AsyncMaster && s.InSyncReplicas > 1 {
		l.warn(fmt.Sprintf("inSyncReplicas=%d has no effect: only a SYNC_MASTER waits for slaves", s.InSyncReplicas), "inSyncReplicas", "brokerRole")
	}
	if s.IsSet("totalReplicas") && s.NeededReplicas() > s.TotalReplicas {
		l.warn(fmt.Sprintf("a send waits for %d copies and totalReplicas=%d says there are fewer", s.NeededReplicas(), s.TotalReplicas), "totalReplicas", "inSyncReplicas")
	}
	if s.MaxMessageSize > maxFrame {
		l.warn(fmt.Sprintf("maxMessageSize=%d: a request of more than %d bytes is refused before that", s.MaxMessageSize, maxFrame), "maxMessageSize")
	}
	// BrokerController holds the period within these bounds too.
	held := min(max(s.RegisterNameServerPeriod, 10_000), 60_000)
	if held != s.RegisterNameServerPeriod {
		l.warn(fmt.Sprintf("registerNameServerPeriod=%d is held within 10000 and 60000: %d counts", s.RegisterNameServerPeriod, held), "registerNameServerPeriod")
		s.RegisterNameServerPeriod = held
	}
}

// maxFrame is the largest request on the wire (NettyDecoder).
const maxFrame = 16 << 20

func (l *loader) warn(text string, keys ...string) {
	l.warnings = append(l.warnings, Warning{Keys: keys, Text: text})
}

// Get is the value in force of a setting as text. Aliases are known.
func (s *Settings) Get(key string) (value string, ok bool) {
	setting, ok := lookup(key)
	if !ok {
		return "", false
	}
	return setting.format(s), true
}

// Set changes one setting and whatever follows from it; nothing changes where it returns an error. An empty text value
// brings the default back. The settings as a whole may contradict one another afterwards: see [Settings.Validate].
func (s *Settings) Set(key, value string) error {
	value = strings.TrimSpace(value)
	setting, ok := lookup(key)
	switch {
	case ok:
	case isRocketMQKey(key):
		return &Error{Key: key, Value: value, Reason: ErrUnsupported, Text: "a setting of RocketMQ that tandem does not have"}
	default:
		return unknownKey(key, value, Origin{})
	}
	if valid := setting.parse(s, value); valid != "" {
		return badValue(key, value, Origin{}, "not valid; valid: "+valid)
	}
	s.explicit[setting.index] = value != ""
	s.resolve()
	return nil
}

// IsSet tells whether a setting was given, in a file, by a flag or by Set; otherwise its default is in force.
func (s *Settings) IsSet(key string) bool {
	setting, ok := lookup(key)
	return ok && s.explicit[setting.index]
}

// KeyValue is one setting with its value in force.
type KeyValue struct{ Key, Value string }

// Effective lists all settings with the values in force, in the table's order. Loaded again, they give the same settings.
func (s *Settings) Effective() []KeyValue {
	table := described()
	list := make([]KeyValue, len(table))
	for i := range table {
		list[i] = KeyValue{table[i].Key, table[i].format(s)}
	}
	return list
}

// Validate finds values that are out of range (after fields were assigned) and values that contradict one another.
func (s *Settings) Validate() error {
	scratch := *s
	var faults []error
	for _, d := range described() {
		value := d.format(s)
		if valid := d.parse(&scratch, value); valid != "" {
			faults = append(faults, badValue(d.Key, value, Origin{}, "not valid; valid: "+valid))
		}
	}
	return errors.Join(append(faults, s.contradictions(nil)...)...)
}

// contradictions are values that are valid alone and not together.
func (s *Settings) contradictions(origins map[string]Origin) []error {
	var faults []error
	fault := func(key, text string) {
		value, _ := s.Get(key)
		faults = append(faults, badValue(key, value, origins[key], text))
	}
	if s.BrokerRole == Slave && s.BrokerID <= 0 {
		fault("brokerId", "a SLAVE needs a brokerId above 0, one that no other slave of "+s.BrokerName+" has")
	}
	if p := s.ListenPort; p != 0 && (p <= vipDistance || p == maxPort) {
		fault("listenPort", fmt.Sprintf("not valid; valid: 0, or %d to %d, since listenPort-%d is served too", vipDistance+1, maxPort-1, vipDistance))
	}
	if p := s.HaListenPort; p != 0 && (p == s.ListenPort || p == s.ListenPort-vipDistance) {
		fault("haListenPort", fmt.Sprintf("clients are served on this port: listenPort is %d, and listenPort-%d is served too", s.ListenPort, vipDistance))
	}
	if p := s.EmbeddedNamesrvPort; p != 0 && (p == s.ListenPort || p == s.ListenPort-vipDistance || p == s.HaListenPort) {
		fault("embeddedNamesrvPort", "the broker itself uses this port for listenPort, listenPort-2 or haListenPort")
	}
	if s.InSyncReplicas > 0 && s.MinInSyncReplicas > s.InSyncReplicas {
		fault("minInSyncReplicas", fmt.Sprintf("more than inSyncReplicas=%d", s.InSyncReplicas))
	}
	if s.HardOutputBytes < s.SoftOutputBytes {
		fault("hardOutputBytes", fmt.Sprintf("less than softOutputBytes=%d", s.SoftOutputBytes))
	}
	if s.HaHousekeepingInterval <= s.HaSendHeartbeatInterval {
		fault("haHousekeepingInterval", fmt.Sprintf("must be above haSendHeartbeatInterval=%d, or idle connections are given up", s.HaSendHeartbeatInterval))
	}
	return faults
}

// lookup finds a setting by its key or an alias.
func lookup(key string) (Setting, bool) {
	for _, s := range described() {
		if s.Key == key || slices.Contains(s.Aliases, key) {
			return s, true
		}
	}
	return Setting{}, false
}
