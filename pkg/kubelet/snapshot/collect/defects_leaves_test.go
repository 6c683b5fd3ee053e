package collect

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestD40LeavesAreReadBeforeParents: the kernel sums up the counters of a parent when a leaf is read; here a pipe
// stands for the leaf.
func TestD40LeavesAreReadBeforeParents(t *testing.T) {
	root := tree(t, map[string]string{
		"meminfo":                               meminfoFile,
		"memory/memory.usage_in_bytes":          "614400\n",
		"memory/memory.stat":                    "total_inactive_file 0\n",
		"memory/kubepods/memory.usage_in_bytes": "300000\n", "memory/kubepods/memory.limit_in_bytes": "500000\n",
		"memory/kubepods/memory.stat":                               "total_inactive_file 0\n",
		"memory/kubepods/besteffort/pod12-34/memory.usage_in_bytes": "1000\n",
		"memory/kubepods/besteffort/pod12-34/memory.stat":           "total_inactive_file 0\n",
		"memory/kubepods/besteffort/pod12-34/c/cgroup.procs":        "",
	})
	m, err := NewMemory(Options{CgroupRoot: root, Meminfo: filepath.Join(root, "meminfo"), PodsCgroup: "kubepods"})
	if err != nil {
		t.Fatal(err)
	}
	pods := filepath.Join(root, "memory", "kubepods")
	leaf := filepath.Join(pods, "besteffort", "pod12-34", "c", "memory.stat")
	if err := syscall.Mkfifo(leaf, 0o600); err != nil {
		t.Fatal(err)
	}
	summed := make(chan error, 1)
	go func() {
		pipe, err := os.OpenFile(leaf, os.O_WRONLY, 0) // ends when the leaf is read
		for path, stat := range map[string]string{
			filepath.Join(root, "memory"): "total_inactive_file 102400\n",
			pods:                          "total_inactive_file 100000\n",
			filepath.Join(pods, "besteffort", "pod12-34"): "total_inactive_file 400\n",
		} {
			if err == nil {
				err = os.WriteFile(filepath.Join(path, "memory.stat"), []byte(stat), 0o600)
			}
		}
		if err == nil {
			_, err = pipe.WriteString("total_inactive_file 400\n")
		}
		if err == nil {
			err = pipe.Close()
		}
		summed <- err
	}()
	r := m.ReadMemory(snapshot.Counting{})
	// If the leaf was not read, the writer goes on here, and too late.
	late, err := os.OpenFile(leaf, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if err := <-summed; err != nil {
		t.Fatal(err)
	}
	if p := r.ByPod[types.UID("12-34")]; p == nil || p.WorkingSet.Amount != 600 {
		t.Errorf("the pod is as it was before its container was read: %+v", p)
	}
	if r.Pods.Available != 300000 {
		t.Errorf("the pods together are as they were: %+v", r.Pods)
	}
	if want := int64(1024000 - 614400 + 102400); r.Node.Available != want {
		t.Errorf("the node is as it was: %+v, want %d", r.Node, want)
	}
}
