package vm

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

// output is of a test program that was interrupted. Its lines arrive in two writes.
var output = []string{
	"not meant for this node: TestOld: needs cgroup v1\n=== RUN   TestOne\n=== RUN   TestOne/part\n=== PAUSE TestOne\n" +
		"=== RUN   TestTwo\n    --- PASS: TestOne/part (0.50s)\n--- FAIL: TestTw",
	"o (2.00s)\n--- PASS: TestOne (1.25s)\n=== RUN   TestThree\n    log\n",
}

func TestResultsAreReadFromTheOutput(t *testing.T) {
	var got []TestResult
	reader := &resultReader{report: func(result TestResult) error {
		got = append(got, result)
		return nil
	}}
	for _, text := range output {
		if _, err := reader.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	reader.interrupted(errors.New("the machine ended"))
	want := []TestResult{
		{Test: "TestOld", Outcome: NotMeant, Why: "needs cgroup v1"},
		{Test: "TestTwo", Outcome: Failed, Seconds: "2.00"},
		{Test: "TestOne", Outcome: Passed, Seconds: "1.25"},
		{Test: "TestThree", Outcome: Failed, Why: "it did not end: the machine ended"},
	}
	if !reflect.DeepEqual(got, want) || reader.count != len(want) {
		t.Errorf("%d results: %v, want %v", reader.count, got, want)
	}
}

func TestResultsOutliveTheRun(t *testing.T) {
	layout := NewLayout(t.TempDir())
	tests := []string{"TestOne", "TestTwo", "TestThree", "TestFour"}
	for _, result := range []TestResult{
		{Test: "TestOne", Outcome: Failed}, {Test: "TestTwo", Outcome: NotMeant, Why: "needs swap"},
		{Test: "TestThree", Outcome: Failed, Seconds: "3.00"}, {Test: "TestOne", Outcome: Passed, Seconds: "1.00"},
	} {
		results, err := ReadResults(layout, CgroupsSystemd, false)
		if err != nil {
			t.Fatal(err)
		}
		if err := results.Add(result); err != nil {
			t.Fatal(err)
		}
	}
	results, err := ReadResults(layout, "", false)
	if err != nil {
		t.Fatal(err)
	}
	if open := results.Open(tests); !slices.Equal(open, []string{"TestThree", "TestFour"}) {
		t.Errorf("open are %v", open)
	}
	var out bytes.Buffer
	if bad := results.WriteTable(&out, tests); bad != 2 {
		t.Errorf("%d have not passed", bad)
	}
	for _, want := range []string{
		"TestTwo    not meant for this node        needs swap",
		"1 passed, 1 not meant for this node, 1 failed, 1 did not run",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
	for _, other := range []struct {
		groups Cgroups
		stock  bool
	}{{CgroupsFiles, false}, {CgroupsSystemd, true}} {
		results, err := ReadResults(layout, other.groups, other.stock)
		if err != nil || len(results.Open(tests)) != len(tests) {
			t.Errorf("results of another kind of node: %v, %v", results, err)
		}
	}
}

// A run goes on from the results that are kept in the repository, and a newer result replaces one of them.
func TestResultsOfTheRepositoryCount(t *testing.T) {
	layout := NewLayout(t.TempDir())
	kept, err := json.Marshal(shown{"systemd-kubelet": {
		{Test: "TestOne", Outcome: Passed}, {Test: "TestTwo", Outcome: Passed}, {Test: "TestThree", Outcome: Failed},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := (file{kept, 0o644}).write(filepath.Join(layout.Root, shownFile)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		result TestResult
		open   []string
	}{
		{TestResult{}, []string{"TestThree", "TestFour"}},
		{TestResult{Test: "TestTwo", Outcome: Failed}, []string{"TestTwo", "TestThree", "TestFour"}},
		{TestResult{Test: "TestThree", Outcome: Passed}, []string{"TestTwo", "TestFour"}},
	} {
		results, err := ReadResults(layout, CgroupsSystemd, false)
		if err != nil {
			t.Fatal(err)
		}
		if test.result.Test != "" {
			if err := results.Add(test.result); err != nil {
				t.Fatal(err)
			}
		}
		tests := []string{"TestOne", "TestTwo", "TestThree", "TestFour"}
		if open := results.Open(tests); !slices.Equal(open, test.open) {
			t.Errorf("open are %v, want %v", open, test.open)
		}
	}
}

func TestNodeTestsAreListedInTheirOrder(t *testing.T) {
	root, err := cluster.FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	got, err := NodeTests(root, regexp.MustCompile("^TestLogs|^TestChaos$|^TestMain$"))
	want := []string{"TestChaos", "TestLogs", "TestLogsOfThePreviousContainer"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("tests are %v (%v), want %v", got, err, want)
	}
}

// Each name in the table of what node tests need is that of a test.
func TestNeedsNameTests(t *testing.T) {
	root, err := cluster.FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := NodeTests(root, regexp.MustCompile("."))
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile(filepath.Join(root, "test/e2e_node/needs_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`(?m)^\t"(Test\w+)": +\{`).FindAllSubmatch(table, -1)
	if len(names) == 0 {
		t.Error("the table has no tests")
	}
	for _, found := range names {
		if name := string(found[1]); !slices.Contains(tests, name) {
			t.Errorf("no test is called %s", name)
		}
	}
}

func TestSuiteCommand(t *testing.T) {
	t.Setenv("PLIMSOLL_REPORTER_IDLE", "1h")
	config := testConfig(t)
	config.Stock = true
	command := (&Node{config: config, factor: emulationFactor}).suiteCommand(Suite{Tests: []string{"TestA", "TestB"}})
	for _, want := range []string{
		"cd /suite && env ", ` PLIMSOLL_GUEST="/suite/guest.json"`,
		fmt.Sprintf(` PLIMSOLL_TIME_FACTOR="%d"`, suiteFactor),
		` PLIMSOLL_REPORTER_IDLE="1h"`,
		` PLIMSOLL_KUBELET="/suite/_output/bin/kubelet-stock"`, " _output/bin/node.test ", " -test.run='^(TestA|TestB)$' ",
	} {
		if !strings.Contains(command, want) {
			t.Errorf("%q is not in %s", want, command)
		}
	}
}

func TestMachineOfASuiteStartsNoNode(t *testing.T) {
	config := Config{
		Layout: NewLayout("/repository"), MemoryMiB: 4000, fillDisk: func(string) error { return nil },
		masked: []string{"containerd.service", "kubelet.service"},
	}
	command := machineCommand(config, newNetwork(config.Layout), Image{Disk: "/disk", Kernel: "/kernel"}, "/node", false)
	text := strings.Join(command.Args, " ")
	for _, want := range []string{
		" systemd.mask=containerd.service systemd.mask=kubelet.service", " -m 4000 ",
		"file=/repository/_output/vm/run/disk.img,format=raw,if=none,id=extra,cache=unsafe,snapshot=on",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

// The table in the repository is that of the results there, and of the tests that exist.
func TestTableOfNodeTests(t *testing.T) {
	const root, command = "../..", "run: go run ./test/cmd/devvm keep"
	all, err := readShown(root)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := NodeTests(root, regexp.MustCompile(""))
	if err != nil {
		t.Fatal(err)
	}
	for node, results := range all {
		if !slices.ContainsFunc(columns, func(c struct{ node, title string }) bool { return c.node == node }) {
			t.Errorf("the table has no column for %s", node)
		}
		for _, result := range results {
			if !slices.Contains(tests, result.Test) {
				t.Errorf("there is no test %s; %s", result.Test, command)
			}
		}
	}
	page, err := os.ReadFile(filepath.Join(root, shownTable))
	if err != nil {
		t.Fatal(err)
	}
	if string(page) != all.table(tests) {
		t.Errorf("%s is not the table of %s; %s", shownTable, shownFile, command)
	}
}

func TestNewestResultIsShown(t *testing.T) {
	all := shown{"systemd-kubelet": {
		{Test: "TestGone", Outcome: Passed, Tree: "a"}, {Test: "TestOne", Outcome: Passed, Tree: "a"},
		{Test: "TestTwo", Outcome: Failed, Tree: "a"},
	}}
	tests := []string{"TestTwo", "TestOne", "TestThree"}
	all.add("systemd-kubelet", map[string]TestResult{
		"TestTwo":   {Test: "TestTwo", Outcome: Passed, Tree: "b", Seconds: "2.00"},
		"TestThree": {Test: "TestThree", Outcome: NotMeant, Why: "needs swap"},
	}, tests)
	all.add("cgroupfs-kubelet", nil, tests)
	_, table, _ := strings.Cut(all.table(tests), "---|\n")
	const want = "| `TestTwo` | passed, b, 2.00 s | not yet | not yet | not yet |\n" +
		"| `TestOne` | passed, a | not yet | not yet | not yet |\n" +
		"| `TestThree` | not meant for this node: needs swap | not yet | not yet | not yet |\n"
	if table != want || len(all) != 1 {
		t.Errorf("%d kinds of nodes, table\n%s", len(all), table)
	}
}
