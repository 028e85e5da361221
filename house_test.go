// Package tandem_test holds the rules of the whole house.
package tandem_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "tandem"

// mayImport is the table of rooms (top folders) and the rooms that each may import. A room's sub-packages may import one another
// as they like; "*" is every room.
var mayImport = map[string][]string{
	"codec":      {},
	"commitlog":  {"codec"},
	"engine":     {"codec"},
	"transfer":   {"commitlog", "engine", "codec"},
	"broker":     {"transfer", "commitlog", "engine", "codec"},
	"nameserver": {"engine", "codec"},
	"cluster":    {},
	"bench":      {"cluster", "engine", "codec"},
	"cmd":        {"*"},
	"interop":    {"*"},
}

// testsMayImport adds what a room's tests may import beside that: other rooms stand in for the world outside.
var testsMayImport = map[string][]string{
	"broker": {"nameserver"},
}

// pkg is what `go list -json` tells of a package.
type pkg struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

func TestImportsGoOnlyAsTheTableSays(t *testing.T) {
	packages := listPackages(t)
	require.NotEmpty(t, packages)
	for _, p := range packages {
		from := room(p.ImportPath)
		if from == "" {
			continue // this test
		}
		allowed, known := mayImport[from]
		if !known {
			t.Errorf("%s: the folder %s/ is not in the table of rooms", p.ImportPath, from)
			continue
		}
		for _, fault := range faults(from, p.Imports, allowed) {
			t.Errorf("%s imports %s; %s/ may import %v", p.ImportPath, fault, from, allowed)
		}
		allowed = slices.Concat(allowed, testsMayImport[from])
		for _, fault := range faults(from, slices.Concat(p.TestImports, p.XTestImports), allowed) {
			t.Errorf("the tests of %s import %s; those of %s/ may import %v", p.ImportPath, fault, from, allowed)
		}
	}
}

func TestAForbiddenImportIsFound(t *testing.T) {
	require.Equal(t, []string{"tandem/engine"}, faults("commitlog", []string{"fmt", "tandem/codec", "tandem/commitlog/fs", "tandem/engine"}, []string{"codec"}))
	require.Empty(t, faults("cmd", []string{"tandem/broker/settings"}, []string{"*"}))
}

// faults are the imports that go to a room which is neither from nor allowed.
func faults(from string, imports, allowed []string) []string {
	var out []string
	for _, path := range imports {
		to := room(path)
		if to == "" || to == from || slices.Contains(allowed, to) || slices.Contains(allowed, "*") {
			continue
		}
		out = append(out, path)
	}
	return out
}

// room is the top folder of one of our packages, "" for any other.
func room(path string) string {
	rest, ours := strings.CutPrefix(path, module+"/")
	if !ours {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func listPackages(t *testing.T) []pkg {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
	out, err := cmd.Output()
	require.NoError(t, err, "%s", stderr(err))
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, p)
	}
}

func stderr(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Sprintf("%v: %s", err, exit.Stderr)
	}
	return ""
}
