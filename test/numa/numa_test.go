//go:build vm

package numa

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// record is a folder; each kernel that was booted has a folder for its files there.
var record = flag.String("record", "", "write the files of the kernel to folders in `this one`")

// TestMachines boots each kernel that PLIMSOLL_KERNELS lists, paths with colons between them, with 1, 2 and 4 NUMA
// nodes.
func TestMachines(t *testing.T) {
	kernels := filepath.SplitList(os.Getenv("PLIMSOLL_KERNELS"))
	if len(kernels) == 0 {
		t.Fatal("PLIMSOLL_KERNELS lists no kernel")
	}
	guest := filepath.Join(t.TempDir(), "guest")
	build := exec.Command("go", "build", "-o", guest, "./guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, kernel := range kernels {
		for _, nodes := range []int{1, 2, 4} {
			name := fmt.Sprintf("%s %d", strings.TrimPrefix(filepath.Base(kernel), "vmlinuz-"), nodes)
			t.Run(name, func(t *testing.T) {
				lines, err := Run(t.Context(), kernel, guest, nodes, t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				check(t, lines, nodes)
				write(t, lines, name)
			})
		}
	}
}

// check compares what plugins have answered with what they must answer.
func check(t *testing.T, lines []Line, nodes int) {
	t.Helper()
	filled := []int{nodes - 1}
	if nodes > 1 {
		filled = append(filled, 0)
	}
	played := map[string][]Answer{}
	for _, line := range lines {
		for i, a := range line.Answers {
			if a.Err != "" {
				t.Errorf("%s, round %d: %s", line.Situation, i+1, a.Err)
			}
		}
		played[line.Situation] = line.Answers
	}
	nobody, reclaimed, all := []string(nil), []string{"full"}, []string{"full", "shared"}
	for _, node := range filled {
		for situation, want := range map[string][][]string{
			"calm, critical": {nobody, nobody}, "calm, low": {nobody, nobody, nobody, nobody, nobody, nobody},
			// Pods on other NUMA nodes are never named.
			"full, critical": {reclaimed, all}, "full, low": {nobody, nobody, reclaimed, all},
			"calm again, critical": {nobody},
		} {
			situation = fmt.Sprintf("node %d: %s", node, situation)
			answers := played[situation]
			if len(answers) != len(want) {
				t.Errorf("%s: %d rounds, want %d", situation, len(answers), len(want))
				continue
			}
			for i, a := range answers {
				if !slices.Equal(a.Pods, want[i]) {
					t.Errorf("%s, round %d: %q, want %q", situation, i+1, a.Pods, want[i])
				}
			}
		}
	}
	stalls, throttling := lastOf(t, played, "stalls"), lastOf(t, played, "throttling")
	if first := stalls.Pods[:min(3, len(stalls.Pods))]; !slices.Equal(slices.Sorted(slices.Values(first)),
		[]string{"stalled-1", "stalled-2", "stalled-3"}) || slices.Contains(stalls.Pods, "shared") {
		t.Errorf("stalls: %+v", stalls)
	}
	if !slices.Equal(throttling.Pods, []string{"spins"}) || !strings.Contains(throttling.Note, "throttled") {
		t.Errorf("throttling: %+v", throttling)
	}
}

// lastOf returns the last answer in a situation that needs time: at least as long as the windows of the plugins.
func lastOf(t *testing.T, played map[string][]Answer, situation string) Answer {
	t.Helper()
	answers := played[situation]
	if len(answers) <= 5 {
		t.Fatalf("%s: named after %d rounds, or never", situation, len(answers))
	}
	t.Logf("%s: named in round %d", situation, len(answers))
	return answers[len(answers)-1]
}

// write writes the recorded files to the folder linux-6.1-2-nodes, for example.
func write(t *testing.T, lines []Line, name string) {
	t.Helper()
	if *record == "" {
		return
	}
	release, nodes, _ := strings.Cut(name, " ")
	numbers := strings.SplitN(release, ".", 3)
	ending := "nodes"
	if nodes == "1" {
		ending = "node"
	}
	dir := filepath.Join(*record, fmt.Sprintf("linux-%s-%s-%s", strings.Join(numbers[:2], "."), nodes, ending))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if line.File == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, line.File), []byte(line.Content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
