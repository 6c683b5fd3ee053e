package sources

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// TestCPU: what is in the recorded files, and nothing of what is missing or broken.
func TestCPU(t *testing.T) {
	for _, unified := range []bool{false, true} {
		files, proc := newTree(t), t.TempDir()
		cgroups := files.cgroups(unified, "cpu", "cpuacct")
		write := func(path string, data []byte) {
			t.Helper()
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		c := NewCPU(proc, cgroups, "/kubepods", 2)
		n, err := c.Node()
		if !names(err, "/pressure/cpu", "/stat", "/cpu.stat") || n.Stall != nil || n.Idle != nil || n.Total != nil ||
			n.Periods != nil || n.Throttled != nil || n.CPUs != 2 {
			t.Errorf("without files %+v", n)
		}
		write(filepath.Join(proc, "pressure/cpu"), recorded(t, "host-6.18/pressure-cpu"))
		write(filepath.Join(proc, "stat"), []byte("cpu  10 1 20 300 40 5 6 7 8 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
		throttling := filepath.Join(cgroups.Mounts["cpu"], "kubepods/cpu.stat")
		write(throttling, []byte("usage_usec 5\nnr_periods 100\nnr_throttled 7\nthrottled_usec 9\n"))
		n, err = c.Node()
		if err != nil || *n.Stall != 97.78 || *n.Idle != 340 || *n.Total != 389 || *n.Periods != 100 || *n.Throttled != 7 {
			t.Errorf("%+v", n)
		}
		write(filepath.Join(proc, "stat"), recorded(t, "host-6.18/stat"))
		if n, err := c.Node(); err != nil || *n.Idle <= 0 || *n.Total <= *n.Idle {
			t.Errorf("recorded: %+v", n)
		}
		write(throttling, []byte("nr_periods many\nnr_throttled\n"))
		write(filepath.Join(proc, "stat"), []byte("cpu  10 1 20 300 40 5 6\n"))
		n, err = c.Node()
		if !names(err, "/stat: ", "/cpu.stat: ") || n.Idle != nil || n.Periods != nil || n.Throttled != nil {
			t.Errorf("broken: %+v", n)
		}
		files.write("a", "cpu.stat", []byte("usage_usec 1500000\nuser_usec 5\n"))
		files.write("a", "cpuacct:cpuacct.usage", []byte("1500000000\n"))
		files.write("b", "cpu.stat", []byte("usage_usec -1\n"))
		files.write("b", "cpuacct:cpuacct.usage", []byte("-1\n"))
		got, err := c.Used(pods("a", "b", "c"))
		if !names(err, "/kubepods/b/cpu", "1 of 3 pods") ||
			!maps.Equal(got, map[types.UID]time.Duration{"a": 1500 * time.Millisecond}) {
			t.Errorf("unified %t: %v", unified, got)
		}
		files.write("a", "cpu.stat", []byte("usage_usec +15\n"))
		files.write("a", "cpuacct:cpuacct.usage", []byte("+15\n"))
		if got, err := c.Used(pods("a")); err == nil || len(got) > 0 {
			t.Errorf("unified %t, a number with a sign: %v", unified, got)
		}
		// A hundred CPUs for a year.
		files.write("a", "cpu.stat", []byte("usage_usec 3153600000000000\nuser_usec 5\n"))
		files.write("a", "cpuacct:cpuacct.usage", []byte("3153600000000000000\n"))
		if got, err := c.Used(pods("a")); err != nil || got["a"] != 100*365*24*time.Hour {
			t.Errorf("unified %t, much CPU time: %v", unified, got)
		}
		files.write("a", "cpu.stat", []byte("usage_usec 9223372036854776\nuser_usec 5\n"))
		files.write("a", "cpuacct:cpuacct.usage", []byte("9223372036854775808\n"))
		if got, err := c.Used(pods("a")); err == nil || len(got) > 0 {
			t.Errorf("unified %t, more than can be: %v", unified, got)
		}
		c.Close()
		if n := open(t, files.root) + open(t, proc); n != 0 {
			t.Errorf("%d files are open", n)
		}
	}
}

func FuzzCPUTime(f *testing.F) {
	f.Add(recorded(f, "host-6.18/stat"))
	addRecorded(f, "stat")
	f.Add([]byte("cpu 1 2 3 4 5 6 7 8"))
	f.Fuzz(func(t *testing.T, data []byte) {
		idle, total, ok := cpuTime(data)
		if idle < 0 || total < idle || (!ok && total != 0) {
			t.Errorf("%d of %d, %t", idle, total, ok)
		}
	})
}
