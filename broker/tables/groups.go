package tables

import (
	"maps"
	"strings"
	"sync/atomic"

	"tandem/codec"
)

const groupsFile = "subscriptionGroup.json"

// Groups is the table of consumer groups. See the package comment for goroutine
// rules.
type Groups struct {
	table[codec.SubscriptionGroup]

	// forbidden is carried from file to file and from master to slave unread.
	forbidden atomic.Pointer[forbiddenTable]
}

type forbiddenTable = map[string]map[string]int32

// NewGroups returns the table with only the built-in groups in it.
func NewGroups(files Files, builtin []codec.SubscriptionGroup) *Groups {
	g := &Groups{}
	g.init(files)
	g.forbidden.Store(&forbiddenTable{})
	all := make(map[string]codec.SubscriptionGroup, len(builtin))
	for _, cfg := range builtin {
		all[cfg.GroupName] = normalGroup(cfg.GroupName, cfg)
	}
	g.setLoaded(all, nil)
	return g
}

// Load takes the groups of subscriptionGroup.json over the built-in ones. No
// file is no error: the table then is what NewGroups made. The error is
// ErrDamaged.
func (g *Groups) Load() error {
	from, err := load[codec.SubscriptionGroups](g.files, groupsFile)
	if err != nil || from == nil {
		return err
	}
	g.setForbidden(from.ForbiddenTable)
	g.setLoaded(normalGroups(from.SubscriptionGroupTable), &from.DataVersion)
	return nil
}

func (g *Groups) setForbidden(f forbiddenTable) {
	if f == nil {
		f = forbiddenTable{}
	}
	g.forbidden.Store(&f)
}

// Get returns a group's configuration. It takes no lock and does not allocate.
func (g *Groups) Get(name string) (codec.SubscriptionGroup, bool) { return g.get(name) }

// Find is Get for a name that still lies in a frame.
func (g *Groups) Find(name []byte) (codec.SubscriptionGroup, bool) { return g.getBytes(name) }

// Put adds or replaces a group; if that changes anything the data version is raised.
func (g *Groups) Put(cfg codec.SubscriptionGroup) (changed bool) {
	return g.put(cfg.GroupName, normalGroup(cfg.GroupName, cfg))
}

// Delete removes a group and says whether it was there.
func (g *Groups) Delete(name string) bool { return g.delete(name) }

// DataVersion returns the version of the table as it stands.
func (g *Groups) DataVersion() codec.DataVersion { return g.dataVersion() }

// EnsureDefault returns a group's configuration, creating it with the default
// settings if there is none and autoCreate (autoCreateSubscriptionGroup) allows it, or
// the group is a system one. ok is false if there is none and none may be
// created, for its name too.
func (g *Groups) EnsureDefault(name string, autoCreate bool) (cfg codec.SubscriptionGroup, created, ok bool) {
	return g.ensure(name, func() (codec.SubscriptionGroup, bool) {
		if !legalGroup(name) || !autoCreate && !strings.HasPrefix(name, systemGroupPrefix) {
			return codec.SubscriptionGroup{}, false
		}
		return normalGroup(name, codec.NewSubscriptionGroup(name)), true
	})
}

func legalGroup(name string) bool {
	return len(name) <= MaxGroupLength && ValidateTopic(name) == nil
}

// Snapshot returns the whole table as of one moment, as it is sent to slaves.
func (g *Groups) Snapshot() codec.SubscriptionGroups {
	all, version := g.snapshot()
	return g.groups(all, version)
}

func (g *Groups) groups(all map[string]codec.SubscriptionGroup, version codec.DataVersion) codec.SubscriptionGroups {
	return codec.SubscriptionGroups{
		DataVersion:            version,
		ForbiddenTable:         *g.forbidden.Load(),
		SubscriptionGroupTable: all,
	}
}

// Replace makes the table equal to the master's and stores its data version as
// it is; see Topics.Replace.
func (g *Groups) Replace(from codec.SubscriptionGroups) (added, changed, removed []string, dirty bool) {
	d := g.replace(normalGroups(from.SubscriptionGroupTable), from.DataVersion)
	if d.dirty {
		g.setForbidden(from.ForbiddenTable)
	}
	return d.added, d.changed, d.removed, d.dirty
}

// Persist writes subscriptionGroup.json if anything changed since it was last written.
func (g *Groups) Persist() error {
	return g.persist(func(all map[string]codec.SubscriptionGroup, version codec.DataVersion) error {
		return g.files.save(groupsFile, g.groups(all, version))
	})
}

func normalGroups(from map[string]codec.SubscriptionGroup) map[string]codec.SubscriptionGroup {
	all := make(map[string]codec.SubscriptionGroup, len(from))
	for name, cfg := range from {
		all[name] = normalGroup(name, cfg)
	}
	return all
}

// normalGroup takes cfg's map away from the caller.
func normalGroup(name string, cfg codec.SubscriptionGroup) codec.SubscriptionGroup {
	cfg.GroupName = name
	if len(cfg.Attributes) == 0 {
		cfg.Attributes = nil
	}
	cfg.Attributes = maps.Clone(cfg.Attributes)
	return cfg
}

// BuiltinGroups returns the groups every broker has, with the default settings.
func BuiltinGroups() []codec.SubscriptionGroup {
	var groups []codec.SubscriptionGroup
	for _, name := range []string{
		"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY",
		"CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER", "CID_RMQ_SYS_TRANS",
	} {
		groups = append(groups, codec.NewSubscriptionGroup(name))
	}
	return groups
}
