package vm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

// Outcomes of a test.
const (
	// Passed is the outcome of a test that has passed.
	Passed = "passed"
	// Failed is the outcome of a test that has failed, or did not end since the machine or the run ended.
	Failed = "failed"
	// NotMeant is the outcome of a test that has no meaning on the node, for a fact of the node.
	NotMeant = "not meant for this node"
)

// TestResult is the result of a test in the machine.
type TestResult struct {
	Test    string `json:"test"`
	Outcome string `json:"outcome"`
	// Seconds is how long it ran, as the test program prints it; "" for a test that did not run to its end.
	Seconds string `json:"seconds,omitempty"`
	// Tree is the commit and the day of the run.
	Tree string `json:"tree,omitempty"`
	// Why is what the test needs and the node does not have, or why it did not end.
	Why string `json:"why,omitempty"`
}

var (
	resultLine   = regexp.MustCompile(`^--- (PASS|FAIL): (Test\w+) \((\d+\.\d+)s\)$`)
	notMeantLine = regexp.MustCompile(`^` + NotMeant + `: (Test\w+): (.+)$`)
	startLine    = regexp.MustCompile(`^=== RUN   (Test\w+)$`)
)

// resultReader finds the results in the output of a test program that is written to it.
type resultReader struct {
	report func(TestResult) error
	// rest is the last line as far as it was written.
	rest []byte
	// running are the tests that have started and not ended.
	running []string
	count   int
	err     error
}

// Write implements io.Writer. It never fails: an error of report is kept.
func (r *resultReader) Write(text []byte) (int, error) {
	r.rest = append(r.rest, text...)
	for {
		line, rest, found := bytes.Cut(r.rest, []byte("\n"))
		if !found {
			return len(text), nil
		}
		r.rest = rest
		r.readLine(string(line))
	}
}

func (r *resultReader) readLine(line string) {
	if found := startLine.FindStringSubmatch(line); found != nil {
		r.running = append(r.running, found[1])
	}
	if found := notMeantLine.FindStringSubmatch(line); found != nil {
		r.add(TestResult{Test: found[1], Outcome: NotMeant, Why: found[2]})
	}
	if found := resultLine.FindStringSubmatch(line); found != nil {
		outcome := Passed
		if found[1] == "FAIL" {
			outcome = Failed
		}
		r.add(TestResult{Test: found[2], Outcome: outcome, Seconds: found[3]})
	}
}

func (r *resultReader) add(result TestResult) {
	r.running = slices.DeleteFunc(r.running, func(name string) bool { return name == result.Test })
	r.count++
	if r.report != nil {
		r.err = errors.Join(r.err, r.report(result))
	}
}

// interrupted has the tests fail that run, as the program has ended with that error.
func (r *resultReader) interrupted(err error) {
	for _, name := range slices.Clone(r.running) {
		r.add(TestResult{Test: name, Outcome: Failed, Why: "it did not end: " + err.Error()})
	}
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{`)

// NodeTests returns the names of the tests of test/e2e_node that match, in the order in which they run.
func NodeTests(root string, match *regexp.Regexp) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, "test/e2e_node/*_test.go"))
	if err != nil {
		return nil, fmt.Errorf("list tests: %w", err)
	}
	slices.Sort(files)
	var names []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("list tests: %w", err)
		}
		for _, found := range testFunction.FindAllSubmatch(text, -1) {
			if match.Match(found[1]) {
				names = append(names, string(found[1]))
			}
		}
	}
	return names, nil
}

// Results are the results of the node tests on one kind of node, in a file that outlives runs.
type Results struct {
	file    string
	results map[string]TestResult
}

// ReadResults reads the results for a node with that kubelet and control groups: those that Keep has added to the
// repository, and newer ones of runs in the layout.
func ReadResults(layout cluster.Layout, groups Cgroups, stock bool) (*Results, error) {
	node := groups.name() + "-" + Config{Stock: stock}.kubelet()
	kept, err := readShown(layout.Root)
	if err != nil {
		return nil, err
	}
	all := map[string]TestResult{}
	for _, result := range kept[node] {
		all[result.Test] = result
	}
	name := resultsFile(layout, node)
	newer, err := readResults(name)
	maps.Copy(all, newer)
	return &Results{file: name, results: all}, err
}

// resultsFile is the file of the results for a kind of node.
func resultsFile(layout cluster.Layout, node string) string {
	return filepath.Join(layout.Root, cluster.OutputDir, "vm", "tests-"+node+".json")
}

func readResults(name string) (map[string]TestResult, error) {
	results := map[string]TestResult{}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return results, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read results: %w", err)
	}
	var list []TestResult
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("decode results: %w", err)
	}
	for _, result := range list {
		results[result.Test] = result
	}
	return results, nil
}

// Add adds a result, in the place of an earlier one of the same test, and writes the file.
func (r *Results) Add(result TestResult) error {
	r.results[result.Test] = result
	var list []TestResult
	for _, result := range r.results {
		list = append(list, result)
	}
	slices.SortFunc(list, func(a, b TestResult) int { return strings.Compare(a.Test, b.Test) })
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	return file{append(data, '\n'), 0o644}.write(r.file)
}

// Open returns those of the tests that have no result, or have failed.
func (r *Results) Open(tests []string) (open []string) {
	for _, name := range tests {
		if outcome := r.results[name].Outcome; outcome != Passed && outcome != NotMeant {
			open = append(open, name)
		}
	}
	return open
}

// WriteTable writes a table of the results of these tests, and returns how many have not passed although they are meant
// for the node.
func (r *Results) WriteTable(out io.Writer, tests []string) (bad int) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	counts := map[string]int{}
	for _, name := range tests {
		result, found := r.results[name]
		if !found {
			result.Outcome = "did not run"
		}
		counts[result.Outcome]++
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", name, result.Outcome, result.Seconds, result.Why)
	}
	table.Flush()
	bad = len(tests) - counts[Passed] - counts[NotMeant]
	fmt.Fprintf(out, "\n%d passed, %d not meant for this node, %d failed, %d did not run\n", counts[Passed],
		counts[NotMeant], counts[Failed], bad-counts[Failed])
	return bad
}
