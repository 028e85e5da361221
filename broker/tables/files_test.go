package tables

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"tandem/codec"
)

// persistent is what all four tables have in common.
type persistent interface {
	Load() error
	Persist() error
}

// kind is one of the tables with ways to change it and to see how far it is.
type kind struct {
	file string
	open func(Files) persistent
	step func(p persistent, n int) // brings the table to state n
	at   func(p persistent) int    // which state it is in; 0 empty
}

var kinds = []kind{
	{
		topicsFile, func(f Files) persistent { return NewTopics(f, BuiltinTopics("C", "b1")) },
		func(p persistent, n int) {
			p.(*Topics).Put(codec.TopicConfig{TopicName: "T", ReadQueueNums: int32(n), Perm: 6})
		},
		func(p persistent) int { cfg, _ := p.(*Topics).Get("T"); return int(cfg.ReadQueueNums) },
	},
	{
		groupsFile, func(f Files) persistent { return NewGroups(f, BuiltinGroups()) },
		func(p persistent, n int) {
			p.(*Groups).Put(codec.SubscriptionGroup{GroupName: "G", RetryMaxTimes: int32(n)})
		},
		func(p persistent) int { cfg, _ := p.(*Groups).Get("G"); return int(cfg.RetryMaxTimes) },
	},
	{
		offsetsFile, func(f Files) persistent { return NewOffsets(f) },
		func(p persistent, n int) { p.(*Offsets).Commit("G", "T", 0, int64(n)) },
		func(p persistent) int { n, _ := p.(*Offsets).Query("G", "T", 0); return int(n) },
	},
	{
		delayFile, func(f Files) persistent { return NewDelayOffsets(f) },
		func(p persistent, n int) { p.(*DelayOffsets).Update(1, int64(n)) },
		func(p persistent) int { n, _ := p.(*DelayOffsets).Get(1); return int(n) },
	},
}

func forEachKind(t *testing.T, test func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.file, func(t *testing.T) { test(t, k) })
	}
}

func reopen(t *testing.T, k kind, f Files) persistent {
	t.Helper()
	p := k.open(f)
	require.NoError(t, p.Load())
	return p
}

// savedTwice is a directory whose file is in state 2 and whose .bak is in state 1.
func savedTwice(t *testing.T, k kind) Files {
	f := testFiles(t)
	p := k.open(f)
	for n := 1; n <= 2; n++ {
		k.step(p, n)
		require.NoError(t, p.Persist())
	}
	require.Equal(t, 2, k.at(reopen(t, k, f)))
	return f
}

func TestWhatWasSavedIsThereAgain(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		f := savedTwice(t, k)
		require.NoError(t, os.Rename(f.path(k.file+backupSuffix), f.path(k.file)))
		require.Equal(t, 1, k.at(reopen(t, k, f)), "the .bak is the version before")
		require.NoFileExists(t, f.path(k.file+tempSuffix))
	})
}

func TestNoFileIsAnEmptyTable(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		require.Zero(t, k.at(reopen(t, k, testFiles(t))))
	})
}

// damages are ways for a file to be spoilt. Junk behind a whole table leaves it
// readable or not, as the reader likes: never empty, that is all.
var damages = []struct {
	name   string
	damage func(content string) string
}{
	{"emptied", func(string) string { return "" }},
	{"blank", func(string) string { return " \n\t" }},
	{"cut in half", func(s string) string { return s[:len(s)/2] }},
	{"cut before the last brace", func(s string) string { return s[:len(s)-1] }},
	{"zeroed", func(s string) string { return strings.Repeat("\x00", len(s)) }},
	{"second half zeroed", func(s string) string { return s[:len(s)/2] + strings.Repeat("\x00", len(s)/2) }},
	{"junk in place of it", func(string) string { return "\x1f\x8b junk }" }},
	{"null in place of it", func(string) string { return "null" }},
	{"a list in place of it", func(string) string { return "[1,2]" }},
	{"a field of another type", func(s string) string { return strings.Replace(s, "{", `{"dataVersion":[],`, 1) }},
	{"zeros behind it", func(s string) string { return s + "\x00\x00\x00" }},
	{"junk behind it", func(s string) string { return s + "~junk~" }},
}

func TestADamagedFileIsReplacedByItsBackup(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		for _, d := range damages {
			t.Run(d.name, func(t *testing.T) {
				f := savedTwice(t, k)
				write(t, f, k.file, d.damage(text(t, f, k.file)))
				core, logs := observer.New(zap.WarnLevel)
				f.Logger = zap.New(core)
				p := reopen(t, k, f)
				require.Equal(t, 1, k.at(p), "one save old, not more")
				require.Equal(t, 1, logs.Len(), "with a warning")
				require.Contains(t, fmt.Sprint(logs.All()[0].ContextMap()), f.path(k.file))

				// The good .bak outlives the next save, whatever happens to that.
				require.FileExists(t, f.path(k.file+damagedSuffix))
				require.Equal(t, 1, k.at(reopen(t, k, f)))
				k.step(p, 3)
				require.NoError(t, p.Persist())
				require.Equal(t, 3, k.at(reopen(t, k, f)))
				require.NoError(t, os.Remove(f.path(k.file)))
				require.Equal(t, 1, k.at(reopen(t, k, f)))
			})
		}
	})
}

func TestADamagedBackupIsNoMatterWhileTheFileIsGood(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		for _, d := range damages {
			f := savedTwice(t, k)
			write(t, f, k.file+backupSuffix, d.damage(text(t, f, k.file+backupSuffix)))
			require.Equal(t, 2, k.at(reopen(t, k, f)), d.name)
		}
	})
}

func TestAMissingFileIsReplacedByItsBackup(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		f := savedTwice(t, k)
		require.NoError(t, os.Remove(f.path(k.file)))
		require.Equal(t, 1, k.at(reopen(t, k, f)))
	})
}

func TestTwoDamagedFilesAreAnErrorNotAnEmptyTable(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		for _, d := range damages {
			for _, backup := range []string{"damaged", "missing"} {
				t.Run(d.name+", backup "+backup, func(t *testing.T) {
					f := savedTwice(t, k)
					spoilt := d.damage(text(t, f, k.file))
					write(t, f, k.file, spoilt)
					if backup == "missing" {
						require.NoError(t, os.Remove(f.path(k.file+backupSuffix)))
					} else {
						write(t, f, k.file+backupSuffix, spoilt)
					}
					err := k.open(f).Load()
					require.ErrorIs(t, err, ErrDamaged)
					require.ErrorContains(t, err, f.path(k.file)+" (")
					require.ErrorContains(t, err, f.path(k.file+backupSuffix)+" (")
					require.Equal(t, spoilt, text(t, f, k.file), "the evidence stays where it is")
				})
			}
		}
	})
}

func TestAFileThatCannotBeReadIsAnErrorNotAnEmptyTable(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		f := testFiles(t)
		require.NoError(t, os.MkdirAll(f.path(k.file), 0o755)) // a directory of that name
		require.ErrorIs(t, k.open(f).Load(), ErrDamaged)
	})
}

func TestASaveIsOnDiskBeforeItCounts(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		f := savedTwice(t, k)
		var synced []string
		f.sync = func(file *os.File) error {
			synced = append(synced, file.Name())
			switch file.Name() {
			case f.path(k.file + tempSuffix):
				require.Equal(t, 2, k.at(reopen(t, k, f)), "the old file is in its place until the new one is safe")
			case f.Dir:
				require.Equal(t, 3, k.at(reopen(t, k, f)), "the directory is the last")
			}
			return file.Sync()
		}
		p := reopen(t, k, f)
		k.step(p, 3)
		require.NoError(t, p.Persist())
		require.Equal(t, []string{f.path(k.file + tempSuffix), f.Dir}, synced)

		f.sync = func(file *os.File) error { return os.ErrDeadlineExceeded }
		p = reopen(t, k, f)
		k.step(p, 4)
		require.ErrorIs(t, p.Persist(), os.ErrDeadlineExceeded)
		require.Equal(t, 3, k.at(reopen(t, k, f)), "a new file that may not be safe replaces nothing")
	})
}

func TestNothingIsWrittenWhenNothingChanged(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		f := savedTwice(t, k)
		p := reopen(t, k, f)
		require.NoError(t, os.RemoveAll(f.Dir))
		k.step(p, 2)
		require.NoError(t, p.Persist())
		require.NoDirExists(t, f.Dir)
		k.step(p, 3)
		require.NoError(t, p.Persist())
		require.Equal(t, 3, k.at(reopen(t, k, f)))
	})
}

func TestAFailedSaveIsTriedAgain(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		f := savedTwice(t, k)
		p := reopen(t, k, f)
		k.step(p, 3)
		require.NoError(t, os.Mkdir(f.path(k.file+tempSuffix), 0o755))
		require.ErrorContains(t, p.Persist(), f.path(k.file))
		require.Equal(t, 2, k.at(reopen(t, k, f)), "the file is as it was")
		require.NoError(t, os.Remove(f.path(k.file+tempSuffix)))
		require.NoError(t, p.Persist())
		require.Equal(t, 3, k.at(reopen(t, k, f)))
	})
}

func TestAChangeDuringASaveIsInTheNextOne(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		f := savedTwice(t, k)
		var p persistent
		once := true
		f.sync = func(*os.File) error {
			if once {
				once = false
				k.step(p, 4) // also: nobody who changes the table waits for the disk
			}
			return nil
		}
		p = reopen(t, k, f)
		k.step(p, 3)
		require.NoError(t, p.Persist())
		require.Equal(t, 3, k.at(reopen(t, k, f)))
		require.NoError(t, p.Persist())
		require.Equal(t, 4, k.at(reopen(t, k, f)))
	})
}

// A crash may leave any prefix of a save's steps behind.
func TestACrashAtAnyStepOfASaveLeavesTheOldOrTheNewTable(t *testing.T) {
	forEachKind(t, func(t *testing.T, k kind) {
		old, new := savedTwice(t, k), savedTwice(t, k)
		p := reopen(t, k, new)
		k.step(p, 3)
		require.NoError(t, p.Persist())
		third := text(t, new, k.file)
		for step, state := range map[string]int{
			"temporary file begun": 2, "temporary file written": 2, "old file moved": 2, "new file moved": 3,
		} {
			f := testFiles(t)
			write(t, f, k.file, text(t, old, k.file))
			write(t, f, k.file+backupSuffix, text(t, old, k.file+backupSuffix))
			write(t, f, k.file+tempSuffix, third)
			switch step {
			case "temporary file begun":
				write(t, f, k.file+tempSuffix, third[:9])
			case "old file moved":
				require.NoError(t, os.Rename(f.path(k.file), f.path(k.file+backupSuffix)))
			case "new file moved":
				require.NoError(t, os.Rename(f.path(k.file), f.path(k.file+backupSuffix)))
				require.NoError(t, os.Rename(f.path(k.file+tempSuffix), f.path(k.file)))
			}
			p := reopen(t, k, f)
			require.Equal(t, state, k.at(p), step)
			k.step(p, 9)
			require.NoError(t, p.Persist(), step)
			require.Equal(t, 9, k.at(reopen(t, k, f)), step)
		}
	})
}

// What can be read can be written and is then read as the same.
func FuzzParse(f *testing.F) {
	for _, version := range []string{"4.9.7", "5.5.0"} {
		files := Files{Dir: "testdata/" + version}
		for _, k := range kinds {
			f.Add([]byte(text(f, files, k.file)))
		}
	}
	f.Add([]byte(`{"offsetTable":{"a@b@c":{0:1},"@":{},"x":{"7":-1},"x@":{}}}`))
	f.Add([]byte(`{"topicConfigTable":{"":{"attributes":{"a":null}}},"forbiddenTable":{"g":null}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if from, err := parse[codec.TopicConfigs](content); err == nil {
			topics := NewTopics(Files{}, nil)
			topics.setLoaded(normalTopics(from.TopicConfigTable), &from.DataVersion)
			again := rewritten(t, topics.Snapshot())
			again.TopicConfigTable = normalTopics(again.TopicConfigTable)
			require.Equal(t, topics.Snapshot(), again)
		}
		if from, err := parse[codec.SubscriptionGroups](content); err == nil {
			groups := NewGroups(Files{}, nil)
			groups.setLoaded(normalGroups(from.SubscriptionGroupTable), &from.DataVersion)
			again := rewritten(t, groups.Snapshot())
			require.Len(t, again.SubscriptionGroupTable, len(groups.Snapshot().SubscriptionGroupTable))
		}
		if from, err := parse[codec.ConsumerOffsets](content); err == nil {
			o := NewOffsets(Files{})
			o.fill(from)
			again := NewOffsets(Files{})
			written := rewritten(t, o.Snapshot())
			again.fill(&written)
			require.Equal(t, o.Snapshot(), again.Snapshot())
		}
		if from, err := parse[codec.DelayOffsets](content); err == nil {
			require.Len(t, rewritten(t, *from).OffsetTable, len(from.OffsetTable))
		}
	})
}

func rewritten[T any](t *testing.T, v T) T {
	t.Helper()
	content, err := codec.MarshalIndent(v)
	require.NoError(t, err)
	again, err := parse[T](content)
	require.NoError(t, err)
	return *again
}
