//go:build vm

package vm

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// The unit is restarted five times, while pods run and one after the other is created. No container is restarted, and
// every agent ends in order.
func TestRestartsOfTheUnitHarmNoPod(t *testing.T) {
	pods := create(t, "restarts", kit.IdlePod("one"), kit.IdlePod("two"))
	for i := range pods {
		pods[i] = waitPod(t, pods[i], kit.Ready)
	}
	for round := range 5 {
		since := now(t)
		inMachine(t, "systemctl restart kubelet")
		pod := create(t, fmt.Sprintf("restarts-%d", round), kit.IdlePod("meanwhile"))[0]
		must(t, kit.Poll(t.Context(), limit(), func(ctx context.Context) error { return node.Ready(ctx, since) }))
		pods = append(pods, waitPod(t, pod, kit.Ready))
	}
	for _, pod := range pods {
		unharmed(t, pod)
	}
	if got := inMachine(t, "systemctl show -p NRestarts,Result kubelet"); got != "Result=success\nNRestarts=0" {
		t.Errorf("the unit has %q", got)
	}
}

// Systemd reads its units again and again, as packages do that are installed, while a pod is evicted. It writes the
// properties of slices and scopes each time. One pod is evicted, nothing else ends, and the limits of pods stay.
func TestDaemonReloadsDuringAnEviction(t *testing.T) {
	limited := kit.IdlePod("limited")
	limited.Spec.Containers[0].Resources.Limits = kit.Resources("500m", "128Mi")
	hog := kit.HogPod("hog", "--start=800", "--rate=10", "--limit=3000")
	pods := create(t, "reloads", limited, kit.IdlePod("neighbour"), hog)
	for i := range 2 {
		pods[i] = waitPod(t, pods[i], kit.Ready)
	}
	before := limits(t, pods[:2])
	const reloads = "node-reloads"
	const loop = "'while systemctl daemon-reload; do sleep 1; done'"
	inMachine(t, "systemd-run --quiet --collect --unit="+reloads+" sh -c "+loop)
	t.Cleanup(func() {
		if _, err := node.Run(context.WithoutCancel(t.Context()), "systemctl stop "+reloads); err != nil {
			t.Error(err)
		}
	})
	evicted := waitPod(t, pods[2], kit.InPhase(v1.PodFailed))
	if evicted.Status.Reason != "Evicted" {
		t.Errorf("the hog was not evicted: %s", kit.Describe(evicted))
	}
	must(t, kit.Poll(t.Context(), limit(), func(ctx context.Context) error {
		return kit.MemoryPressure(ctx, node.Client(), false)
	}))
	for _, pod := range pods[:2] {
		unharmed(t, pod)
	}
	if after := limits(t, pods[:2]); after != before {
		t.Errorf("the limits of pods were\n%s\nand are\n%s", before, after)
	}
	if got := inMachine(t, "systemctl is-active "+reloads); got != "active" {
		t.Errorf("the unit that reloads is %s", got)
	}
}

// limits returns the limits in the control groups of the pods and of their containers.
func limits(t *testing.T, pods []*v1.Pod) string {
	t.Helper()
	var uids []string
	for _, pod := range pods {
		// Names of slices have underscores.
		uids = append(uids, "-e "+strings.ReplaceAll(string(pod.UID), "-", "[-_]"))
	}
	return inMachine(t, "cd /sys/fs/cgroup"+groups.pods()+" && grep -r . --include=memory.max --include=cpu.max "+
		"--include=pids.max --include=cpu.weight | grep "+strings.Join(uids, " ")+" | sort")
}
