package conformance

import (
	"embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// known has the names of the specs that passed with the stock kubelet of this release, one per line: a file for each
// suite that was run on a development machine, and one for each round of a suite in the virtual machine.
//
//go:embed stock/*.txt stock/*/*.txt
var known embed.FS

// knownFile is the path of stock's results of this suite in the repository, below test/conformance.
func (s Suite) knownFile() string {
	if s.Machine != nil {
		return path.Join("stock", fmt.Sprintf("machine-round%d", s.Machine.round), s.Name+".txt")
	}
	return path.Join("stock", s.Name+".txt")
}

// Known returns stock's results in the repository: the specs of this suite that passed, in the virtual machine those of
// this round. It is empty for a suite without such results.
func (s Suite) Known() Results {
	results := Results{}
	data, err := known.ReadFile(s.knownFile())
	if err != nil {
		return results
	}
	for name := range strings.SplitSeq(strings.TrimSpace(string(data)), "\n") {
		results[name] = Outcome{State: passed}
	}
	return results
}

// WriteKnown writes the results that Known returns once they are committed and built: the specs of results that passed
// and that the suite of this name has. It returns the file and the number of specs. If none passed it fails and does
// not change the file.
func (s Suite) WriteKnown(results Results) (file string, count int, err error) {
	selection, err := SelectionByName(s.Name)
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
		return "", 0, fmt.Errorf("no results of suite %s with the stock kubelet are kept; -stock only runs it", s.Name)
	}
	slices.Sort(names)
	file = filepath.Join(s.Root, "test", "conformance", s.knownFile())
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", 0, fmt.Errorf("write results: %w", err)
	}
	if err := os.WriteFile(file, []byte(strings.Join(names, "\n")+"\n"), 0o644); err != nil {
		return "", 0, fmt.Errorf("write results: %w", err)
	}
	return file, len(names), nil
}
