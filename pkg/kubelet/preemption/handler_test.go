package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/test/fakekill"
)

func newPod(name string, priority int32, cpu string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name)},
		Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)},
		}}}},
	}
}

func static(pod *v1.Pod) *v1.Pod {
	pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
	return pod
}

// node is a node full of pods, with a record of the stopped ones.
type node struct {
	mu          sync.Mutex
	pods        []*v1.Pod
	terminating []types.UID
	waiting     []types.UID
	readmitted  []types.UID
	stuck       []types.UID
	stopped     []string
	awaited     []string
	statuses    []v1.PodStatus
}

func (n *node) IsWaiting(uid types.UID) bool { return slices.Contains(n.waiting, uid) }
func (n *node) Readmitted(pod *v1.Pod) bool  { return slices.Contains(n.readmitted, pod.UID) }

func (n *node) IsPodTerminationRequested(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.terminating, uid)
}

// CouldHaveRunningContainers is true for every pod.
func (n *node) CouldHaveRunningContainers(uid types.UID) bool { return true }

// newHandler returns a handler. The node's stuck pods are past the last escalation step.
func newHandler(n *node, kill podkill.Func, recorder record.EventRecorder) *Handler {
	stuck := func(uid types.UID) bool { return slices.Contains(n.stuck, uid) }
	return NewHandler(Config{
		Pods: n, Lifecycle: n, Kill: kill, Recorder: recorder, EscalationExhausted: stuck, OnAttemptEnd: func() {},
	})
}

// failAdmission does what the predicates and the waiting pods do: admission fails, and the attempt begins.
func failAdmission(
	t *testing.T, h *Handler, n *node, pod *v1.Pod, reasons []lifecycle.PredicateFailureReason,
) ([]lifecycle.PredicateFailureReason, error) {
	t.Helper()
	remain, err := failPredicates(t, h, n, pod, reasons)
	h.Begin(t.Context(), pod.UID)
	return remain, err
}

// failPredicates does what the predicates do: admission fails, and an attempt may be planned.
func failPredicates(
	t *testing.T, h *Handler, n *node, pod *v1.Pod, reasons []lifecycle.PredicateFailureReason,
) ([]lifecycle.PredicateFailureReason, error) {
	t.Helper()
	attrs := &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: n.pods, Operation: lifecycle.AddOperation}
	return failureHandler{h, attrs}.HandleAdmissionFailure(t.Context(), pod, reasons)
}

func (n *node) kill(_ context.Context, r podkill.Request) error {
	pod := r.Pod
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(n.stuck, pod.UID) {
		n.terminating = append(n.terminating, pod.UID)
		return errors.New("timed out")
	}
	if !r.Evict {
		n.awaited = append(n.awaited, pod.Name)
		return nil
	}
	status := v1.PodStatus{}
	r.Disruption.Apply(&status)
	n.statuses = append(n.statuses, status)
	n.stopped = append(n.stopped, pod.Name)
	slices.Sort(n.stopped)
	return nil
}

func missingCPU(milli int64) []lifecycle.PredicateFailureReason {
	missing := &lifecycle.InsufficientResourceError{ResourceName: v1.ResourceCPU, Requested: milli}
	return []lifecycle.PredicateFailureReason{missing}
}

// failUntilDecided lets admission fail until no attempt is planned any more, or until an attempt has stopped all its
// victims: until then the missing amounts are the same.
func failUntilDecided(
	t *testing.T, h *Handler, n *node, pod *v1.Pod, reasons []lifecycle.PredicateFailureReason,
) (remain []lifecycle.PredicateFailureReason, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for failed := 0; ; failed = len(h.preemptors[pod.UID].failed) {
			remain, err = failPredicates(t, h, n, pod, reasons)
			// An attempt may end as soon as it has begun.
			if !h.InProgress(pod.UID) {
				return
			}
			if len(remain) != len(reasons) || err != nil {
				t.Errorf("while an attempt is in progress: %v, %v", remain, err)
			}
			h.Begin(t.Context(), pod.UID)
			synctest.Wait()
			if h.InProgress(pod.UID) {
				t.Fatal("the attempt has not ended although its victims have stopped or failed")
			}
			if len(h.preemptors[pod.UID].failed) == failed {
				remain = nil
				return
			}
		}
	})
	return remain, err
}

// TestD25AdmissionDoesNotBlock: a victim takes an hour to stop.
func TestD25AdmissionDoesNotBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{pods: []*v1.Pod{newPod("slow", 0, "100m"), newPod("slower", 1, "100m")}}
		critical := newPod("critical", scheduling.SystemCriticalPriority, "200m")
		kill := n.killAfter(func() { time.Sleep(time.Hour) })
		h := newHandler(n, kill, record.NewFakeRecorder(10))
		begin := time.Now()
		for range 3 {
			if remain, err := failAdmission(t, h, n, critical, missingCPU(200)); len(remain) != 1 || err != nil {
				t.Errorf("%v, %v", remain, err)
			}
			synctest.Wait()
		}
		if time.Since(begin) != 0 || !h.InProgress("critical") {
			t.Errorf("waited %v", time.Since(begin))
		}
		if !h.IsVictim("slow") || !h.IsVictim("slower") || h.IsVictim("critical") {
			t.Error("the victims of the attempt are not victims")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if h.InProgress("critical") || len(n.stopped) != 2 {
			t.Errorf("stopped %v after an hour, want both", n.stopped)
		}
		if h.IsVictim("slow") {
			t.Error("still a victim after it has stopped")
		}
		h.Forget("critical")
		if len(h.preemptors) != 0 {
			t.Error("not forgotten")
		}
	})
}

// A plan is reported with the pods that are stopped for it and those that are awaited, its absence with the reason.
func TestPlansAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{pods: []*v1.Pod{newPod("runs", 0, "100m"), newPod("ends", 0, "100m")}, terminating: []types.UID{"ends"}}
		critical := newPod("critical", scheduling.SystemCriticalPriority, "200m")
		h := newHandler(n, fakekill.Waiting(n.kill), record.NewFakeRecorder(10))
		var got []string
		h.Planned = func(pod *v1.Pod, stop, await []*v1.Pod, err error) {
			got = append(got, fmt.Sprint(pod.Name, names(stop), names(await), err != nil))
		}
		for _, milli := range []int64{200, 5000} {
			_, _ = failPredicates(t, h, n, critical, missingCPU(milli))
		}
		if want := []string{"critical[runs] [ends] false", "critical[] [] true"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

func names(pods []*v1.Pod) (list []string) {
	for _, pod := range pods {
		list = append(list, pod.Name)
	}
	return list
}

func TestHandler(t *testing.T) {
	critical := newPod("critical", scheduling.SystemCriticalPriority, "100m")
	taint := &lifecycle.PredicateFailureError{PredicateName: tainttoleration.Name}
	affinity := &lifecycle.PredicateFailureError{PredicateName: "NodeAffinity"}
	for name, tc := range map[string]struct {
		node    *node
		pod     *v1.Pod
		reasons []lifecycle.PredicateFailureReason
		remain  []lifecycle.PredicateFailureReason
		stopped []string
		awaited []string
		err     string
	}{
		"an ordinary pod does not preempt": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m")}}, pod: newPod("b", 10, "100m"),
			reasons: missingCPU(100), remain: missingCPU(100),
		},
		"a critical pod preempts": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m"), newPod("b", -1, "100m")}}, pod: critical,
			reasons: missingCPU(100), stopped: []string{"b"},
		},
		"what preemption cannot help with is returned alone": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m")}}, pod: critical, reasons: append(missingCPU(100), affinity),
			remain: []lifecycle.PredicateFailureReason{affinity},
		},
		"D19: a victim that does not stop is replaced by another": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m"), newPod("b", -1, "100m")}, stuck: []types.UID{"b"}},
			pod:  critical, reasons: missingCPU(100), stopped: []string{"a"},
		},
		"D19: no admission when no victim stops": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m")}, stuck: []types.UID{"a"}}, pod: critical,
			reasons: missingCPU(100), err: "default/a: timed out",
		},
		"D20: static pods stay": {
			node: &node{pods: []*v1.Pod{static(newPod("a", 0, "100m"))}}, pod: critical,
			reasons: missingCPU(100), err: "no set of running pods frees [cpu: 100]",
		},
		"D21: waits for a terminating pod": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m"), newPod("b", 10, "100m")}, terminating: []types.UID{"b"}},
			pod:  critical, reasons: missingCPU(100), awaited: []string{"b"},
		},
		"a pod that ran here before is admitted": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m")}, readmitted: []types.UID{"b"}}, pod: newPod("b", 0, "100m"),
			reasons: append(missingCPU(100), taint),
		},
		"unless the node does not match it any more": {
			node: &node{readmitted: []types.UID{"b"}}, pod: newPod("b", 0, "100m"), reasons: append(missingCPU(100), affinity),
			remain: []lifecycle.PredicateFailureReason{affinity},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := tc.node
			h := newHandler(n, fakekill.Waiting(n.kill), record.NewFakeRecorder(10))
			remain, err := failUntilDecided(t, h, n, tc.pod, tc.reasons)
			if tc.err == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("error %v, want %q", err, tc.err)
			}
			if len(remain) != len(tc.remain) {
				t.Errorf("remaining reasons %v, want %v", remain, tc.remain)
			}
			if !slices.Equal(n.stopped, tc.stopped) || !slices.Equal(n.awaited, tc.awaited) {
				t.Errorf("stopped %v, awaited %v; want %v, %v", n.stopped, n.awaited, tc.stopped, tc.awaited)
			}
			for _, status := range n.statuses {
				_, condition := podutil.GetPodCondition(&status, v1.DisruptionTarget)
				if status.Phase != v1.PodFailed || status.Reason != "Preempting" || condition == nil ||
					condition.Reason != v1.PodReasonTerminationByKubelet {
					t.Errorf("status of a victim: %+v", status)
				}
			}
		})
	}
}
