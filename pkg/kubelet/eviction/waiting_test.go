package eviction

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// entrance is the admission of a node with this eviction manager: a gate with a room, and a chain that is the manager
// alone.
type entrance struct {
	manager  *Manager
	gate     *admission.Gate
	room     *admission.WaitingPods
	statuses map[types.UID]v1.PodStatus
}

func (e *entrance) AddPod(_ []*v1.Pod, pod *v1.Pod) (bool, string, string) {
	r := e.manager.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
	return r.Admit, r.Reason, r.Message
}

func (e *entrance) SetPodStatus(_ klog.Logger, pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	e.statuses[pod.UID] = status
	return status, true
}

func (e *entrance) State(types.UID) (podlifecycle.State, bool) { return podlifecycle.State{}, false }

func (e *entrance) GetContainerResourceAllocation(types.UID, string) (v1.ResourceRequirements, bool) {
	return v1.ResourceRequirements{}, false
}

func (e *entrance) InProgress(types.UID) bool        { return false }
func (e *entrance) Begin(context.Context, types.UID) {}
func (e *entrance) Forget(types.UID)                 {}

func newEntrance(m *Manager, n *node) *entrance {
	e := &entrance{manager: m, statuses: map[types.UID]v1.PodStatus{}}
	e.room = admission.NewWaitingPods(admission.WaitingPodsConfig{
		Pressure: m, Victims: e, Status: e, Recorder: n, Clock: clock.RealClock{},
		Active: func() []*v1.Pod { return nil }, ShuttingDown: func() bool { return false },
		MaxWait: func() time.Duration { return min(m.Options().WaitForRoom, m.config.PressureTransitionPeriod) },
	})
	e.gate = admission.NewGate(e, admission.NewReadmission(e, e), e.room, admission.NewRejector(n, e))
	return e
}

// daemon is a pod as the DaemonSet controller makes it.
func daemon(generation int) *v1.Pod {
	yes := true
	pod := plainPod(fmt.Sprintf("daemon-%d", generation))
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}}
	pod.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists,
		Effect: v1.TaintEffectNoSchedule}}
	return pod
}

// TestD17DaemonSetsDoNotLoop: a hard threshold is met for ten minutes, while a DaemonSet replaces each pod that fails
// within a second. With stock there would be 600 failed pods.
func TestD17DaemonSetsDoNotLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.available(100 * mi)
		run(t, n, n.config(t, hard("1Gi")), func(m *Manager, wait func(time.Duration)) {
			wait(time.Second)
			e := newEntrance(m, n)
			generation := 0
			turn := func() bool {
				pod := daemon(generation)
				if e.gate.Admit(t.Context(), pod) {
					return true
				}
				if e.statuses[pod.UID].Phase == v1.PodFailed {
					generation++
				}
				wait(time.Second)
				return false
			}
			for range 600 {
				if turn() {
					t.Fatal("admitted while a hard threshold is met")
				}
			}
			if generation < 9 || generation > 10 {
				t.Errorf("%d pods have failed", generation)
			}
			n.available(5 * gi)
			seconds := 0
			for !turn() {
				seconds++
			}
			if seconds > 2 || !m.IsUnderMemoryPressure() {
				t.Errorf("admitted after %d s; the condition lingers: %v", seconds, m.IsUnderMemoryPressure())
			}
			if len(e.room.UIDs()) != 0 {
				t.Errorf("%v still wait", e.room.UIDs())
			}
		})
	})
}
