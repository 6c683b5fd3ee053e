package conformance

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// known has, for each suite that was run with the stock kubelet of this release on a development machine, the names of
// the specs that passed, one per line.
//
//go:embed stock/*.txt
var known embed.FS

// KnownStock returns stock's results in the repository: the specs that passed. It is empty for a suite without such
// results.
func KnownStock(suite string) Results {
	results := Results{}
	data, err := known.ReadFile("stock/" + suite + ".txt")
	if err != nil {
		return results
	}
	for name := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		results[name] = Outcome{State: passed}
	}
	return results
}

// WriteKnown writes the results that KnownStock returns once they are committed and built: the specs of results that
// passed and that the suite of this name has. It returns the file, in the repository at root, and the number of specs.
// If none passed it fails and does not change the file.
func WriteKnown(root, suite string, results Results) (file string, count int, err error) {
	selection, err := SelectionByName(suite)
	if err != nil {
		return "", 0, err
	}
	chosen, err := selection.Chooser()
	if err != nil {
		return "", 0, err
	}
	var names []string
	for name, outcome := range results {
		if outcome.State == passed && chosen(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", 0, fmt.Errorf("no results of suite %s with the stock kubelet are kept; -stock only runs it", suite)
	}
	slices.Sort(names)
	file = filepath.Join(root, "test", "conformance", "stock", suite+".txt")
	if err := os.WriteFile(file, []byte(strings.Join(names, "\n")+"\n"), 0o644); err != nil {
		return "", 0, fmt.Errorf("write results: %w", err)
	}
	return file, len(names), nil
}
