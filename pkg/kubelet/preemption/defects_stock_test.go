package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	stock "k8s.io/kubernetes/pkg/kubelet/preemption"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/test/fakekill"
)

// The tests of this file are named after the rows of docs/defects.md. Each runs its scenario with stock's handler and
// with ours, and also fails when stock does not show the defect any more: then the row has to be removed.

// outcome is the result of the admission of a critical pod that lacks CPU.
type outcome struct {
	admitted bool
	stopped  []string
}

func (o outcome) String() string {
	return fmt.Sprintf("admitted %v, stopped %v", o.admitted, o.stopped)
}

// stockOutcome runs stock's handler on a node. As in stock, pods that are being deleted are among the active ones.
func stockOutcome(t *testing.T, n *node, milli int64) outcome {
	t.Helper()
	o := outcome{stopped: []string{}}
	kill := func(pod *v1.Pod, _ bool, _ *int64, _ func(*v1.PodStatus)) error {
		if slices.Contains(n.stuck, pod.UID) {
			return errors.New("timed out")
		}
		o.stopped = append(o.stopped, pod.Name)
		return nil
	}
	h := stock.NewCriticalPodAdmissionHandler(func() []*v1.Pod { return n.pods }, kill, record.NewFakeRecorder(10))
	critical := newPod("critical", scheduling.SystemCriticalPriority, "100m")
	remain, err := h.HandleAdmissionFailure(t.Context(), critical, missingCPU(milli))
	o.admitted = len(remain) == 0 && err == nil
	return o
}

func ourOutcome(t *testing.T, n *node, milli int64) outcome {
	t.Helper()
	h := newHandler(n, fakekill.Waiting(n.kill), record.NewFakeRecorder(10))
	critical := newPod("critical", scheduling.SystemCriticalPriority, "100m")
	remain, err := failUntilDecided(t, h, n, critical, missingCPU(milli))
	return outcome{admitted: len(remain) == 0 && err == nil, stopped: n.stopped}
}

func burstable(pod *v1.Pod, memory string) *v1.Pod {
	pod.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse(memory)
	return pod
}

func guaranteed(pod *v1.Pod, memory string) *v1.Pod {
	r := &burstable(pod, memory).Spec.Containers[0].Resources
	r.Limits = r.Requests
	return pod
}

func terminating(pod *v1.Pod) *v1.Pod {
	now := metav1.Unix(1e9, 0)
	pod.DeletionTimestamp = &now
	return pod
}

func TestBesideStock(t *testing.T) {
	for name, test := range map[string]struct {
		node        func() *node
		stock, ours string
	}{
		"D18 a high priority, and a class of higher quality": {
			func() *node {
				return &node{pods: []*v1.Pod{
					burstable(newPod("burstable", 1e9, "100m"), "1Mi"),
					guaranteed(newPod("guaranteed", -1000, "100m"), "1Mi"),
				}}
			},
			"admitted true, stopped [burstable]", "admitted true, stopped [guaranteed]",
		},
		"D19 the kill fails": {
			func() *node { return &node{pods: []*v1.Pod{newPod("a", 0, "100m")}, stuck: []types.UID{"a"}} },
			"admitted true, stopped []", "admitted false, stopped []",
		},
		"D19 the kill fails, and there is another victim": {
			func() *node {
				return &node{pods: []*v1.Pod{newPod("a", -1, "100m"), newPod("b", 0, "200m")}, stuck: []types.UID{"a"}}
			},
			"admitted true, stopped []", "admitted true, stopped [b]",
		},
		"D20 a static pod with a priority": {
			func() *node { return &node{pods: []*v1.Pod{static(newPod("a", 1000, "100m"))}} },
			"admitted true, stopped [a]", "admitted false, stopped []",
		},
		"D21 eight cores and little memory, or just what is needed": {
			func() *node {
				return &node{pods: []*v1.Pod{
					burstable(newPod("a-8-cores", 0, "8"), "10Mi"), burstable(newPod("b-100m", 0, "100m"), "20Mi"),
				}}
			},
			"admitted true, stopped [a-8-cores]", "admitted true, stopped [b-100m]",
		},
		"D21 another pod is terminating already": {
			func() *node {
				return &node{pods: []*v1.Pod{
					burstable(newPod("healthy", 0, "100m"), "10Mi"),
					terminating(burstable(newPod("terminating", 0, "100m"), "20Mi")),
				}, terminating: []types.UID{"terminating"}}
			},
			"admitted true, stopped [healthy]", "admitted true, stopped []",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stockOutcome(t, test.node(), 100).String(); got != test.stock {
				t.Errorf("stock, which does not show the defect any more: %s, not %s", got, test.stock)
			}
			if got := ourOutcome(t, test.node(), 100).String(); got != test.ours {
				t.Errorf("ours: %s, want %s", got, test.ours)
			}
		})
	}
}

// killAfter is kill after a wait.
func (n *node) killAfter(wait func()) podkill.Func {
	return fakekill.Waiting(func(ctx context.Context, r podkill.Request) error {
		wait()
		return n.kill(ctx, r)
	})
}

// TestD25BesideStock: two victims with a grace period of an hour. Stock returns when both have stopped, one after the
// other.
func TestD25BesideStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		victims := func() []*v1.Pod { return []*v1.Pod{newPod("slow", 0, "100m"), newPod("slower", 0, "100m")} }
		critical := newPod("critical", scheduling.SystemCriticalPriority, "200m")
		wait := func() { <-time.After(time.Hour) }
		begin := time.Now()
		kill := func(*v1.Pod, bool, *int64, func(*v1.PodStatus)) error { wait(); return nil }
		h := stock.NewCriticalPodAdmissionHandler(victims, kill, record.NewFakeRecorder(10))
		_, err := h.HandleAdmissionFailure(t.Context(), critical, missingCPU(200))
		if err != nil || time.Since(begin) != 2*time.Hour {
			t.Errorf("stock does not show the defect any more: %v after %v", err, time.Since(begin))
		}
		begin = time.Now()
		n := &node{pods: victims()}
		ours := newHandler(n, n.killAfter(wait), record.NewFakeRecorder(10))
		remain, err := failAdmission(t, ours, n, critical, missingCPU(200))
		if len(remain) != 1 || err != nil || time.Since(begin) != 0 {
			t.Errorf("ours: %v, %v after %v", remain, err, time.Since(begin))
		}
		wait()
		synctest.Wait()
		if ours.InProgress("critical") || len(n.stopped) != 2 {
			t.Errorf("ours: stopped %v after an hour", n.stopped)
		}
	})
}

// TestD50BesideStock: a pod ends between the listing of the pods and the choice of victims. Stock lists them a second
// time for the choice.
func TestD50BesideStock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, ending := newPod("other", 0, "400m"), newPod("ending", 0, "600m")
		critical := newPod("critical", scheduling.SystemCriticalPriority, "400m")
		predicates := func(h lifecycle.AdmissionFailureHandler) lifecycle.PodAdmitHandler {
			capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourcePods: resource.MustParse("10")}
			node := &v1.Node{Status: v1.NodeStatus{Allocatable: capacity, Capacity: capacity}}
			return lifecycle.NewPredicateAdmitHandler(
				func(context.Context, bool) (*v1.Node, error) { return node, nil }, h,
				func(*schedulerframework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil })
		}
		listed := []*v1.Pod{other, ending}
		attrs := &lifecycle.PodAdmitAttributes{Pod: critical, OtherPods: listed, Operation: lifecycle.AddOperation}

		var stopped []string
		kill := func(pod *v1.Pod, _ bool, _ *int64, _ func(*v1.PodStatus)) error {
			stopped = append(stopped, pod.Name)
			return nil
		}
		now := func() []*v1.Pod { return []*v1.Pod{other} }
		predicates(stock.NewCriticalPodAdmissionHandler(now, kill, record.NewFakeRecorder(10))).Admit(attrs)
		if want := []string{"other"}; !slices.Equal(stopped, want) {
			t.Errorf("stock, which does not show the defect any more, stops %v, not %v", stopped, want)
		}

		n := &node{terminating: []types.UID{"ending"}}
		ours := newHandler(n, fakekill.Waiting(n.kill), record.NewFakeRecorder(10))
		ours.Predicates(predicates).Admit(attrs)
		ours.Begin(t.Context(), "critical")
		synctest.Wait()
		if len(n.stopped) != 0 || !slices.Equal(n.awaited, []string{"ending"}) || ours.InProgress("critical") {
			t.Errorf("ours stops %v and awaits %v", n.stopped, n.awaited)
		}
	})
}
