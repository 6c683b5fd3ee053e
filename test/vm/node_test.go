//go:build vm

package vm

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// The node is what it claims to be: systemd is process 1, the hierarchy is unified, and the unit runs our kubelet,
// which has notified systemd.
func TestUnitRunsOurKubelet(t *testing.T) {
	info, err := kit.Node(t.Context(), node.Client())
	must(t, err)
	if got := info.Status.NodeInfo.KubeletVersion; got != build.OwnVersion {
		t.Errorf("the node's kubelet is %s", got)
	}
	for command, want := range map[string]string{
		"cat /proc/1/comm":                                                   "systemd",
		"stat -f -c %T /sys/fs/cgroup":                                       "cgroup2fs",
		"systemctl is-active systemd-logind dbus kubelet":                    "active\nactive\nactive",
		"systemctl show -p Type,NRestarts kubelet":                           "Type=notify\nNRestarts=0",
		"readlink /proc/$(systemctl show -p MainPID --value kubelet)/exe":    "/opt/node/kubelet",
		"systemctl show -p NRestarts --value containerd":                     "0",
		"cd /sys/fs/cgroup/system.slice; cat memory.min kubelet*/memory.min": "268435456\n268435456",
		"cat /sys/fs/cgroup" + groups.pods() + "/cgroup.type":                "domain",
	} {
		if got := inMachine(t, command); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// Unit tests that use control groups pass on this kernel, where the hierarchy is unified: cgroup.kill, pidfds and the
// freezer. The one that is left out needs the freezer of v1, in which a process that was killed stays.
func TestControlGroupsOfThisKernel(t *testing.T) {
	for _, part := range build.KernelTests() {
		t.Run(part.Name, func(t *testing.T) {
			const flags = " -test.v -test.skip='^TestKernelReleasesMemory$' 2>&1"
			out := inMachine(t, "cd $(mktemp -d) && "+ProgramDir+"/"+part.Name+flags)
			if !strings.Contains(out, "\nPASS") {
				t.Errorf("no test has passed:\n%s", out)
			}
		})
	}
}

// A pod runs in the control group of its layout, which systemd has made if it has the driver of systemd, and its output
// arrives through the API server.
func TestPodRuns(t *testing.T) {
	pods := create(t, "runs", kit.Pod("once", "echo hello"), kit.IdlePod("idle"))
	waitPod(t, pods[0], kit.InPhase(v1.PodSucceeded))
	idle := waitPod(t, pods[1], kit.Ready)
	log, err := node.Client().CoreV1().Pods("runs").GetLogs("once", &v1.PodLogOptions{}).DoRaw(t.Context())
	must(t, err)
	if string(log) != "hello\n" {
		t.Errorf("the pod's log is %q", log)
	}
	_, id, _ := strings.Cut(idle.Status.ContainerStatuses[0].ContainerID, "://")
	group := groups.container(string(idle.UID), id)
	if got := inMachine(t, "wc -l </sys/fs/cgroup"+group+"/cgroup.procs"); got == "0" {
		t.Errorf("no process is in %s", group)
	}
	if got := inMachine(t, "systemctl is-active cri-containerd-"+id+".scope || :"); (got == "active") != groups.systemd() {
		t.Errorf("the container's scope is %s", got)
	}
}

// A pod that takes more memory than it requests is evicted before the kernel kills anything; its neighbour stays.
func TestMemoryPressureEvictsTheHogAlone(t *testing.T) {
	hog := kit.HogPod("hog", "--start=800", "--rate=10", "--limit=3000")
	pods := create(t, "pressure", kit.IdlePod("neighbour"), hog)
	neighbour := waitPod(t, pods[0], kit.Ready)
	evicted := waitPod(t, pods[1], kit.InPhase(v1.PodFailed))
	if evicted.Status.Reason != "Evicted" {
		t.Errorf("the hog was not evicted: %s", kit.Describe(evicted))
	}
	must(t, kit.Poll(t.Context(), limit(), func(ctx context.Context) error {
		return kit.MemoryPressure(ctx, node.Client(), true)
	}))
	must(t, kit.Poll(t.Context(), limit(), func(ctx context.Context) error {
		return kit.MemoryPressure(ctx, node.Client(), false)
	}))
	unharmed(t, neighbour)
	if got := inMachine(t, "grep '^oom_kill ' /sys/fs/cgroup"+groups.pods()+"/memory.events"); got != "oom_kill 0" {
		t.Errorf("the kernel has killed processes: %s", got)
	}
}

// The stock kubelet takes the node over and gives it back, as docs/operations.md describes it, and no container is
// restarted.
func TestStockAndBackUnderSystemd(t *testing.T) {
	pods := create(t, "swap", kit.IdlePod("one"), kit.IdlePod("two"))
	for i := range pods {
		pods[i] = waitPod(t, pods[i], kit.Ready)
	}
	for _, stock := range []bool{true, false} {
		must(t, node.UseKubelet(t.Context(), stock))
		for _, pod := range pods {
			unharmed(t, pod)
		}
		created := create(t, fmt.Sprintf("swap-stock-%v", stock), kit.Pod("new", "true"))
		waitPod(t, created[0], kit.InPhase(v1.PodSucceeded))
	}
	if got := inMachine(t, "systemctl show -p NRestarts --value kubelet"); got != "0" {
		t.Errorf("systemd has restarted the kubelet %s times", got)
	}
}

// unharmed fails the test if a container of the pod is another one than before, or the pod is not Ready.
func unharmed(t *testing.T, before *v1.Pod) {
	t.Helper()
	now := waitPod(t, before, kit.Ready)
	for i, status := range now.Status.ContainerStatuses {
		if was := before.Status.ContainerStatuses[i]; status.ContainerID != was.ContainerID || status.RestartCount != 0 {
			t.Errorf("pod %s: container %s was restarted: %s", now.Name, status.Name, kit.Describe(now))
		}
	}
}
