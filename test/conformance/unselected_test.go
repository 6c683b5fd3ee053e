package conformance

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The file about specs that no selection has must match the selections and the reasons: make conformance
// CONFORMANCE_ARGS=-unselected writes it.
func TestUnselectedSpecsHaveTheirReason(t *testing.T) {
	written := map[bool]map[string][]string{false: readUnselected(t, "node.txt"), true: readUnselected(t, "cluster.txt")}
	for cluster, byReason := range written {
		has, err := selected(cluster)
		if err != nil {
			t.Fatal(err)
		}
		reasons := nodeReasons
		if cluster {
			reasons = clusterReasons
		}
		delete(byReason, inNodeSuite)
		var names []string
		for _, of := range byReason {
			names = append(names, of...)
		}
		again, err := sortOut(names, has, reasons)
		if err != nil {
			t.Fatal(err)
		}
		for _, of := range again {
			slices.Sort(of)
		}
		if diff := cmp.Diff(byReason, again); diff != "" || len(names) == 0 {
			t.Errorf("cluster=%t: %d names (-written +by the rules):\n%s", cluster, len(names), diff)
		}
	}
}

func readUnselected(t *testing.T, file string) map[string][]string {
	t.Helper()
	data, err := os.ReadFile("unselected/" + file)
	if err != nil {
		t.Fatal(err)
	}
	byReason, why := map[string][]string{}, ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSuffix(line, "\n")
		if heading, is := strings.CutPrefix(line, "# "); is {
			why = heading
			continue
		}
		byReason[why] = append(byReason[why], line)
	}
	if text := formatUnselected(byReason); text != string(data) {
		t.Errorf("%s is not in order", file)
	}
	return byReason
}

func TestASpecWithoutSelectionAndReasonIsAnError(t *testing.T) {
	nodes := []string{"[sig-node] Pods run", "[sig-node] Kernel panics [Disruptive]", "[sig-fun] plays"}
	if _, err := Unselected(false, nodes, nil); err == nil || !strings.HasSuffix(err.Error(), ":\n[sig-fun] plays") {
		t.Errorf("error %v", err)
	}
	clusters := []string{"[sig-node] Pods run", "[sig-storage] Volumes [Conformance]"}
	got, err := Unselected(true, nodes[:2], clusters)
	if err != nil || !cmp.Equal(got, map[string][]string{inNodeSuite: {"[sig-node] Pods run"}}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSpecsAreCountedByTheirOutermostContainer(t *testing.T) {
	got := formatUnselected(map[string][]string{
		"later": {"z"},
		"early": counted([]string{"b one", "b two", "a one"}, map[string]string{"b one": "b", "b two": "b", "a one": "a"}),
	})
	if want := "# early\na (1 specs)\nb (2 specs)\n# later\nz\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
