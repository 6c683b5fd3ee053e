package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

const (
	// shownFile has the results that are kept in the repository, shownTable the table made from them.
	shownFile  = "test/vm/shown.json"
	shownTable = "docs/node-tests.md"
)

// shown has the newest result of each node test by the kind of node, as in "systemd-kubelet".
type shown map[string][]TestResult

const shownHead = `# Node tests in the machine with cgroup v2

The newest result of each test of test/e2e_node in a virtual machine, with the commit of the tree, the day and the
seconds it took; the machines were emulated. On cgroup v1 all of them pass in each run of CI. The command
"go run ./test/cmd/devvm keep" writes this page from test/vm/shown.json and the results of "make e2e-vm-node".

`

// columns are the kinds of nodes, in the order of the table.
var columns = []struct{ node, title string }{
	{"systemd-kubelet", "systemd driver"},
	{"cgroupfs-kubelet", "cgroupfs driver"},
	{"cgroup-root-kubelet", "systemd driver, cgroupRoot"},
	{"systemd-kubelet-stock", "systemd driver, stock kubelet"},
}

// Keep adds the results of runs in the layout to those in the repository, and writes the table of docs/node-tests.md.
func Keep(layout cluster.Layout) error {
	all, err := readShown(layout.Root)
	if err != nil {
		return err
	}
	tests, err := NodeTests(layout.Root, regexp.MustCompile(""))
	if err != nil {
		return err
	}
	for _, column := range columns {
		results, err := readResults(resultsFile(layout, column.node))
		if err != nil {
			return err
		}
		all.add(column.node, results, tests)
	}
	data, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := (file{append(data, '\n'), 0o644}).write(filepath.Join(layout.Root, shownFile)); err != nil {
		return err
	}
	return (file{[]byte(all.table(tests)), 0o644}).write(filepath.Join(layout.Root, shownTable))
}

func readShown(root string) (shown, error) {
	data, err := os.ReadFile(filepath.Join(root, shownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return shown{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	all := shown{}
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("decode %s: %w", shownFile, err)
	}
	return all, nil
}

// add replaces results of a kind of node by newer ones, and drops those of other tests than these.
func (s shown) add(node string, newer map[string]TestResult, tests []string) {
	byTest := map[string]TestResult{}
	for _, result := range s[node] {
		byTest[result.Test] = result
	}
	maps.Copy(byTest, newer)
	var list []TestResult
	for _, test := range slices.Sorted(slices.Values(tests)) {
		if result, found := byTest[test]; found {
			list = append(list, result)
		}
	}
	if len(list) > 0 {
		s[node] = list
	}
}

// table is the page of the results.
func (s shown) table(tests []string) string {
	var text strings.Builder
	text.WriteString(shownHead)
	text.WriteString("| test |")
	for _, column := range columns {
		fmt.Fprintf(&text, " %s |", column.title)
	}
	text.WriteString("\n|---|" + strings.Repeat("---|", len(columns)) + "\n")
	for _, test := range tests {
		fmt.Fprintf(&text, "| `%s` |", test)
		for _, column := range columns {
			cell := "not yet"
			for _, result := range s[column.node] {
				if result.Test == test {
					cell = result.cell()
				}
			}
			fmt.Fprintf(&text, " %s |", cell)
		}
		text.WriteString("\n")
	}
	return text.String()
}

// cell is the result in a table.
func (r TestResult) cell() string {
	if r.Outcome == NotMeant {
		return NotMeant + ": " + r.Why
	}
	text := r.Outcome + ", " + r.Tree
	if r.Seconds != "" {
		text += ", " + r.Seconds + " s"
	}
	if r.Why != "" {
		text += ": " + r.Why
	}
	return text
}
