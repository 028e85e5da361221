package settings

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"github.com/magiconair/properties"
)

// entry is one key=value of a configuration file.
type entry struct {
	key, value string
	origin     Origin
}

// readFile reads a Java properties file: '#' and '!' comments, '=', ':' or a blank between key and value, backslash
// escapes, a backslash at a line's end continues it, ISO-8859-1 as java.util.Properties reads it. There is no ${…}
// expansion. Blanks at a value's end, which Java keeps and RocketMQ then trips over, are dropped.
func readFile(path string) ([]entry, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration file: %w", err)
	}
	return parseFile(path, raw)
}

func parseFile(path string, raw []byte) ([]entry, error) {
	var entries []entry
	for _, line := range logicalLines(raw) {
		e, err := parseLine(line.text)
		e.origin = Origin{File: path, Line: line.number}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w: %v", path, line.number, ErrSyntax, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

type logicalLine struct {
	text   string
	number int // of its first line, from 1
}

// logicalLines drops blank and comment lines and joins continued ones, so that each entry knows its line.
func logicalLines(raw []byte) []logicalLine {
	raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf")) // an editor's byte order mark
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(raw))
	var lines []logicalLine
	var current *logicalLine
	for i, natural := range strings.Split(text, "\n") {
		natural = strings.TrimLeft(natural, blanks)
		if current == nil {
			if natural == "" || natural[0] == '#' || natural[0] == '!' {
				continue
			}
			current = &logicalLine{number: i + 1}
		}
		if continues(natural) {
			current.text += natural[:len(natural)-1]
			continue
		}
		current.text += natural
		lines = append(lines, *current)
		current = nil
	}
	if current != nil { // the file ends in a backslash
		lines = append(lines, *current)
	}
	return lines
}

const blanks = " \t\f"

// continues: an odd number of backslashes ends the line.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

func parseLine(line string) (entry, error) {
	if line == "" || strings.ContainsRune("=:", rune(line[0])) {
		return entry{}, fmt.Errorf("%q has no key; key=value is expected", line)
	}
	loader := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := loader.LoadBytes([]byte(line))
	if err != nil {
		return entry{}, fmt.Errorf("%q: %w", line, err)
	}
	for key, value := range p.Map() {
		return entry{key: key, value: strings.TrimSpace(value)}, nil
	}
	return entry{}, fmt.Errorf("%q has no key; key=value is expected", line)
}
