package transfer

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/transfer/rules"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios really give into their files")

// TestScenarios plays the stories in testdata/scenarios: rules and ring together, on a clock that only the story moves. A line
// is a command, and after "=>" what must come of it.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { playFile(t, file) })
	}
}

func playFile(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	story := newStory(t)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		command, want, _ := strings.Cut(line, "=>")
		words := strings.Fields(command)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		got := story.play(words)
		if *rewrite {
			lines[i] = strings.TrimRight(command, " ")
			if got != "" {
				lines[i] += " => " + got
			}
			continue
		}
		require.Equal(t, strings.TrimSpace(want), got, "%s:%d: %s", file, i+1, command)
	}
	if *rewrite {
		require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o644))
	}
}

// story is a master without sockets and files: its rules, its ring, and a log that is only its bounds.
type story struct {
	t        *testing.T
	config   rules.Config
	state    *rules.State
	ring     *Ring
	log      rules.Log
	now      int64
	flushed  int64
	both     bool
	names    map[string]rules.SessionID
	lastID   rules.SessionID
	tickets  int
	answered []string
}

func newStory(t *testing.T) *story {
	return &story{t: t, names: make(map[string]rules.SessionID), log: rules.Log{SegmentSize: 1000}}
}

type storyTicket struct {
	s *story
	n int
}

func (k storyTicket) Done(code codec.ResponseCode) {
	k.s.answered = append(k.s.answered, fmt.Sprintf("%d:%s", k.n, codec.CodeName(code)))
}

func (s *story) number(word string) int64 {
	n, err := strconv.ParseInt(word, 10, 64)
	require.NoError(s.t, err)
	return n
}

func (s *story) play(words []string) string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	switch words[0] {
	case "master":
		s.begin(words[1:])
	case "clock":
		s.now = s.number(words[1])
		s.ring.Expire(s.now)
		for _, id := range s.state.Dead(nil, s.now) {
			say("dead %s", s.name(id))
			s.state.Close(id)
		}
	case "later": // nobody looks at the clock
		s.now = s.number(words[1])
	case "open":
		s.lastID++
		s.names[words[1]] = s.lastID
		s.state.Open(s.lastID, s.now)
	case "close":
		s.state.Close(s.names[words[1]])
	case "hello":
		s.state.Identify(s.names[words[1]], words[2])
	case "report":
		out = append(out, s.report(words[1], s.number(words[2]))...)
	case "append":
		say("%s", s.append(s.number(words[1])))
	case "flushed":
		s.flushed = s.number(words[1])
		s.ring.Advance()
	case "min":
		s.log.Min = s.number(words[1])
	case "usable":
		say("%d", s.state.Usable(s.log.End, s.now))
	case "visible":
		say("%d", s.ring.Visible(s.log.End))
	case "lag":
		session, _ := s.state.Session(s.names[words[1]])
		say("%d bytes %d ms", session.Lag(s.log.End), session.LagMs(s.log.End, s.now))
	case "waiting":
		say("%d", s.ring.Waiting())
	default:
		require.Fail(s.t, "unknown command", words[0])
	}
	out = append(out, s.answered...)
	s.answered = nil
	s.requireConsistent()
	return strings.Join(out, " ")
}

// requireConsistent compares the two ways to say whether a write may wait.
func (s *story) requireConsistent() {
	require.Equal(s.t, s.state.Admit(s.log.End, s.now), s.config.Enough(s.state.Floor(s.now), s.log.End))
}

// begin reads pairs of key and value.
func (s *story) begin(words []string) {
	s.config = rules.Config{Need: 1, MaxGap: 10000, Housekeeping: 20000}
	slaveTimeout, flushTimeout := int64(2000), int64(2000)
	for i := 0; i+1 < len(words); i += 2 {
		n := s.number(words[i+1])
		switch words[i] {
		case "inSyncReplicas":
			s.config.Need = rules.Need(true, int(n))
		case "maxGap":
			s.config.MaxGap = n
		case "slaveTimeout":
			slaveTimeout = n
		case "syncFlushTimeout":
			flushTimeout = n
			s.both = true
		case "end":
			s.log.End = n
		default:
			require.Fail(s.t, "unknown setting", words[i])
		}
	}
	s.state = rules.New(s.config)
	s.ring = NewRing(8)
	s.ring.Configure(RingConfig{
		Flushed: func() int64 { return s.flushed }, Replicated: s.state.Watermark,
		SlaveTimeout:     time.Duration(slaveTimeout) * time.Millisecond,
		SyncFlushTimeout: time.Duration(flushTimeout) * time.Millisecond,
		Now:              func() int64 { return s.now * int64(time.Millisecond) },
	})
}

func (s *story) name(id rules.SessionID) string {
	for name, other := range s.names {
		if other == id {
			return name
		}
	}
	return "?"
}

// report takes an offset of a session that was sent the whole log, and ends the session if it is refused.
func (s *story) report(name string, offset int64) []string {
	id := s.names[name]
	before, _ := s.state.Session(id)
	s.log.Sent = s.log.End
	err := s.state.Report(id, offset, s.log, s.now)
	s.ring.Advance()
	if err != nil {
		s.state.Close(id)
		reason, _, _ := strings.Cut(err.Error(), ":")
		return []string{"refused: " + reason}
	}
	if after, _ := s.state.Session(id); !before.Reported {
		return []string{fmt.Sprintf("from %d", after.Start)}
	}
	return nil
}

func (s *story) append(size int64) string {
	start := s.log.End
	if !s.state.Admit(start, s.now) {
		s.log.End += size
		return "SLAVE_NOT_AVAILABLE"
	}
	if !s.ring.Reserve(1) {
		return "SYSTEM_BUSY"
	}
	s.tickets++
	s.ring.Put(start, start+size, s.both, s.config.Need > 0, storyTicket{s, s.tickets})
	s.log.End += size
	if s.config.Need == 0 {
		s.ring.Advance()
	}
	return fmt.Sprintf("ticket %d", s.tickets)
}
