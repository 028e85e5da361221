package settings

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

func (s *Setting) parseBool(into *Settings, value string) (valid string) {
	switch strings.ToLower(value) { // as Boolean.parseBoolean, except that it takes all else for false
	case "true":
		*s.field(into).(*bool) = true
	case "false":
		*s.field(into).(*bool) = false
	default:
		return s.Valid()
	}
	return ""
}

func (s *Setting) parseEnum(into *Settings, value string) (valid string) {
	if !slices.Contains(s.Values, value) {
		return s.Valid()
	}
	switch f := s.field(into).(type) {
	case *Role:
		*f = Role(value)
	case *FlushDiskType:
		*f = FlushDiskType(value)
	case *JoinFrom:
		*f = JoinFrom(value)
	case *string:
		*f = value
	}
	return ""
}

func (s *Setting) parseString(into *Settings, value string) (valid string) {
	if value == "" {
		value = s.Default
	}
	if value != "" && !s.text.ok(value) {
		return s.Valid()
	}
	*s.field(into).(*string) = value
	return ""
}

func (s *Setting) parseNumber(into *Settings, value string) (valid string) {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < s.Min || n > s.Max {
		return s.Valid()
	}
	switch f := s.field(into).(type) {
	case *int:
		*f = int(n)
	case *int32:
		*f = int32(n)
	case *int64:
		*f = n
	case *Millis:
		*f = Millis(n)
	}
	return ""
}

// textRule is what a text setting takes; the empty text always stands for the default.
type textRule struct {
	valid string
	ok    func(string) bool
}

var (
	nameRule        = textRule{"a name without blanks, / and ;, at most 127 bytes", isName}
	hostRule        = textRule{"an IP address or a host name, without a port", isHost}
	ipRule          = textRule{"an IP address of this machine, 0.0.0.0 for all", isIP}
	pathRule        = textRule{"one directory", isPath}
	addressRule     = textRule{"host:port", IsAddress}
	addressListRule = textRule{"host:port;host:port", isAddressList}
	delayRule       = textRule{`blank-separated times such as "1s 5m 2h 1d"`, isDelayLevels}
)

// isName takes what can stand in a route and in a line of a file.
func isName(v string) bool {
	odd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) || r == '/' || r == ';' }
	return v != "" && len(v) <= 127 && !strings.ContainsFunc(v, odd)
}

func isHost(v string) bool {
	if _, err := netip.ParseAddr(v); err == nil {
		return true
	}
	return v != "" && !strings.ContainsFunc(v, func(r rune) bool {
		return !(r == '-' || r == '_' || r == '.' || r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r)))
	})
}

func isIP(v string) bool {
	_, err := netip.ParseAddr(v)
	return err == nil
}

// isPath refuses several directories: RocketMQ splits storePathCommitLog at commas, tandem keeps its log in one place.
func isPath(v string) bool { return !strings.ContainsAny(v, ",\x00") }

// IsAddress tells whether v is host:port, the host an address or a name.
func IsAddress(v string) bool {
	host, port, err := net.SplitHostPort(v)
	if err != nil || !isHost(host) {
		return false
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

func isAddressList(v string) bool {
	list := splitList(v)
	return len(list) > 0 && !slices.ContainsFunc(list, func(a string) bool { return !IsAddress(a) })
}

func isDelayLevels(v string) bool {
	levels, ok := parseDelayLevels(v)
	return ok && len(levels) > 0
}

// parseDelayLevels reads times as ScheduleMessageService does: a whole number and one of s, m, h, d.
func parseDelayLevels(v string) (levels []time.Duration, ok bool) {
	units := map[byte]time.Duration{'s': time.Second, 'm': time.Minute, 'h': time.Hour, 'd': 24 * time.Hour}
	for _, word := range strings.Fields(v) {
		unit, known := units[word[len(word)-1]]
		n, err := strconv.ParseUint(word[:len(word)-1], 10, 31)
		if !known || err != nil {
			return nil, false
		}
		levels = append(levels, time.Duration(n)*unit)
	}
	return levels, true
}

func oneOf(values []string) string {
	last := len(values) - 1
	return strings.Join(values[:last], ", ") + " or " + values[last]
}
