package cluster

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Conf holds settings by their keys, as they stand in a broker.conf.
type Conf map[string]string

// With returns a copy of c in which the settings of each of more, in this order, replace or add to c's.
func (c Conf) With(more ...Conf) Conf {
	out := Conf{}
	maps.Copy(out, c)
	for _, m := range more {
		maps.Copy(out, m)
	}
	return out
}

// String is the text of a properties file: one "key=value" line per setting, sorted by key.
func (c Conf) String() string {
	var b strings.Builder
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`)
	for _, key := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(&b, "%s=%s\n", key, escape.Replace(c[key]))
	}
	return b.String()
}

// write makes dir if need be and writes the settings to dir/name; it returns the file's path.
func (c Conf) write(dir, name string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(c.String()), 0o644)
}

// addr is where a process with these settings listens on this machine.
func (c Conf) addr() string { return "127.0.0.1:" + c["listenPort"] }
