package conformance

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/kubelet/util"
)

// machineFacts returns a word for the facts of this machine on which results depend.
func machineFacts() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("ask for the kernel's release: %w", err)
	}
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return "", fmt.Errorf("ask for the memory of the machine: %w", err)
	}
	cgroup := "cgroup1"
	if util.IsCgroup2UnifiedMode() {
		cgroup = "cgroup2"
	}
	gib := (memory.Totalram*uint64(memory.Unit) + 1<<29) >> 30
	return fmt.Sprintf("linux%s-%s-%dcpu-%dgib", unix.ByteSliceToString(u.Release[:]), cgroup, runtime.NumCPU(), gib), nil
}
