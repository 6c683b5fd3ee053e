package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// KillShims ends the runtime shims that belong to the containerd that listens
// on socket. A shim outlives its containerd on purpose, so this is needed when
// containerd is gone or its containers could not be removed through it.
func KillShims(ctx context.Context, socket string) error {
	var errs []error
	for _, pid := range shimsOf(socket) {
		errs = append(errs, FindProcess(pid).Kill(ctx))
	}
	return errors.Join(errs...)
}

// Kubelets lists the processes of this machine that run a kubelet, whoever
// started them.
func Kubelets() []int {
	return findProcesses(func(args []string) bool { return strings.Contains(filepath.Base(args[0]), "kubelet") })
}

// shimsOf lists the processes that were started as a shim for socket.
func shimsOf(socket string) []int {
	return findProcesses(func(args []string) bool { return isShimOf(args, socket) })
}

func findProcesses(match func(args []string) bool) []int {
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err == nil && match(strings.Split(string(data), "\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func isShimOf(args []string, socket string) bool {
	return strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && slices.Contains(args, socket)
}
