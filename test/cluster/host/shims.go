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

// KillShims kills the runtime shims of the containerd that listens on socket. Shims outlive containerd, so this is
// needed when containerd has ended or could not remove its containers.
func KillShims(ctx context.Context, socket string) error {
	var errs []error
	for _, pid := range shimsOf(socket) {
		errs = append(errs, FindProcess(pid).Kill(ctx))
	}
	return errors.Join(errs...)
}

// Kubelets returns the PIDs of all kubelets on this machine.
func Kubelets() []int {
	return findProcesses(func(args []string) bool { return strings.Contains(filepath.Base(args[0]), "kubelet") })
}

// shimsOf returns the processes that were started as a shim for socket.
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
