package plugins

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

// TestExample runs the program of docs/writing-a-plugin.md as a process: it registers, its pods are evicted, and its
// registration ends with its socket.
func TestExample(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "example")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program,
		"github.com/plimsoll-project/plimsoll/examples/evictionplugin").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := newRig(t, func(o *plugin.Options) { o.DryRun = plugin.Selector{"example"} },
		pod("a", annotated("example.com/evict", "no longer needed")), pod("b"))
	process := exec.CommandContext(t.Context(), program, "-socket", r.socket("example"))
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
	r.start()
	r.await("the answer in dry run", func() string {
		if row := r.row("example"); row.LastAnswer == nil || row.LastAnswer.Pods != 1 || row.Pods.Asked != 1 {
			return fmt.Sprintf("%+v", row)
		}
		return ""
	})
	if list := r.killed(); len(list) != 0 {
		t.Errorf("requests in dry run: %q", list)
	}
	r.reload(func(o *plugin.Options) { o.DryRun = nil })
	r.evicted("a/30")
	r.message("a", "plugin example", "example: no longer needed")
	if err := process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.await("failed calls", func() string {
		if h := r.row("example").Health; h.Failures == 0 {
			return fmt.Sprintf("%+v", h)
		}
		return ""
	})
}
