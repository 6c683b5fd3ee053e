//go:build e2e

package e2enode

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// showLogIfFailed logs the kubelet's log lines about the pod if the test fails.
func (s *space) showLogIfFailed(pod *v1.Pod) {
	s.t.Cleanup(func() {
		if !s.t.Failed() {
			return
		}
		data, err := os.ReadFile(node.KubeletLog())
		if err != nil {
			s.t.Log(err)
		}
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, string(pod.UID)) || strings.Contains(line, s.name+"/"+pod.Name) {
				s.t.Log(strings.TrimSpace(line))
			}
		}
	})
}

// quickPod is an idle pod with a grace period of two seconds.
func quickPod(name string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(2))
	return pod
}

// mainPID is the PID of the first process of the pod's container on the machine.
func (s *space) mainPID(pod *v1.Pod) int {
	s.t.Helper()
	pid, err := node.ContainerPID(s.ctx, pod.Status.ContainerStatuses[0].ContainerID)
	s.must(err)
	return pid
}

func (s *space) delete(pod *v1.Pod) {
	s.t.Helper()
	s.must(s.client.CoreV1().Pods(s.name).Delete(s.ctx, pod.Name, metav1.DeleteOptions{}))
}

// stat returns the fields of /proc/<pid>/stat after the name: state, parent, …
func stat(pid int) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("process %d: %q", pid, data)
	}
	return fields, nil
}

// dead is nil for a process that has ended, also if its parent has not waited for it.
func dead(pid int) error {
	fields, err := stat(pid)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return nil
	case err != nil:
		return err
	case fields[0] == "Z":
		return nil
	}
	return fmt.Errorf("process %d is in state %s", pid, fields[0])
}

// shimOf returns the PID of the shim of a container, the parent of its first process. It must belong to this cluster.
func (s *space) shimOf(pid int) int {
	s.t.Helper()
	fields, err := stat(pid)
	s.must(err)
	shim, err := strconv.Atoi(fields[1])
	s.must(err)
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", shim))
	s.must(err)
	line := strings.Split(string(args), "\x00")
	if !strings.HasPrefix(filepath.Base(line[0]), "containerd-shim") || !slices.Contains(line, node.Layout().Socket()) {
		s.t.Fatalf("process %d, the parent of container process %d, is not a shim of this cluster: %q", shim, pid, line)
	}
	return shim
}

// halt suspends a process until resume is called or the test ends.
func (s *space) halt(pid int) (resume func()) {
	s.t.Helper()
	before, err := stat(pid)
	s.must(err)
	s.must(syscall.Kill(pid, syscall.SIGSTOP))
	resume = func() {
		// Another process with the same PID has another start time.
		if now, err := stat(pid); err == nil && now[19] == before[19] {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	s.t.Cleanup(resume)
	return resume
}

// TestFrozenPod freezes the cgroup of a pod and deletes the pod. On cgroup v1 no signal ends the processes before the
// kubelet has thawed the cgroup.
func TestFrozenPod(t *testing.T) {
	s := parallelSpace(t)
	pod := s.ready(quickPod("frozen"))
	s.showLogIfFailed(pod)
	pid := s.mainPID(pod)
	file, on, off := freezerFile(t, pid)
	s.must(os.WriteFile(file, []byte(on), 0o644))
	t.Cleanup(func() { _ = os.WriteFile(file, []byte(off), 0o644) })
	s.delete(pod)
	s.must(kit.WaitGone(s.ctx, s.client, pod, podTimeout))
	s.must(dead(pid))
}

// freezerFile returns the file that freezes the pod of a process, and what to write to freeze and to thaw it.
func freezerFile(t *testing.T, pid int) (file, on, off string) {
	t.Helper()
	cgroups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(cgroups)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		// The container's cgroup is below the pod's.
		switch pod := filepath.Dir(parts[2]); {
		case parts[1] == "freezer":
			return filepath.Join("/sys/fs/cgroup/freezer", pod, "freezer.state"), "FROZEN", "THAWED"
		case parts[1] == "" && strings.Contains(pod, "pod"):
			file, on, off = filepath.Join("/sys/fs/cgroup", pod, "cgroup.freeze"), "1", "0"
		}
	}
	if file == "" {
		t.Fatalf("no freezer for process %d: %s", pid, cgroups)
	}
	return file, on, off
}
