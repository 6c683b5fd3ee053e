package preemption

import (
	"context"
	"errors"
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

// node is a node full of pods, with a record of who was stopped.
type node struct {
	mu       sync.Mutex
	pods     []*v1.Pod
	going    []types.UID
	waiting  []types.UID
	old      []types.UID
	stuck    []types.UID
	stopped  []string
	awaited  []string
	statuses []v1.PodStatus
}

func (n *node) Waits(uid types.UID) bool    { return slices.Contains(n.waiting, uid) }
func (n *node) Readmitted(pod *v1.Pod) bool { return slices.Contains(n.old, pod.UID) }

func (n *node) IsPodTerminationRequested(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.going, uid)
}

// CouldHaveRunningContainers is asked about victims that are overdue.
func (n *node) CouldHaveRunningContainers(uid types.UID) bool { return true }

// newHandler returns a handler for which everything was tried with those of the node's pods that are stuck.
func newHandler(n *node, kill podkill.Func, recorder record.EventRecorder) *Handler {
	stuck := func(uid types.UID) bool { return slices.Contains(n.stuck, uid) }
	return NewHandler(Config{
		Pods: n, Lifecycle: n, Kill: kill, Recorder: recorder, EverythingTried: stuck, Over: func() {},
	})
}

// fail plays the predicates and the room: the pod lacks something beside the pods of the node, and has a place to wait.
func fail(
	t *testing.T, h *Handler, n *node, pod *v1.Pod, reasons []lifecycle.PredicateFailureReason,
) ([]lifecycle.PredicateFailureReason, error) {
	t.Helper()
	attrs := &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: n.pods, Operation: lifecycle.AddOperation}
	remain, err := judgement{h, attrs}.HandleAdmissionFailure(t.Context(), pod, reasons)
	h.Begin(t.Context(), pod.UID)
	return remain, err
}

func (n *node) kill(_ context.Context, r podkill.Request) error {
	pod := r.Pod
	n.mu.Lock()
	defer n.mu.Unlock()
	if slices.Contains(n.stuck, pod.UID) {
		n.going = append(n.going, pod.UID)
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
	return []lifecycle.PredicateFailureReason{&lifecycle.InsufficientResourceError{ResourceName: v1.ResourceCPU, Requested: milli}}
}

// ask plays the predicates and the room for as long as room is being made: what is missing is the same until an
// attempt has stopped all its victims.
func ask(
	t *testing.T, h *Handler, n *node, pod *v1.Pod, reasons []lifecycle.PredicateFailureReason,
) (remain []lifecycle.PredicateFailureReason, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		remain, err = fail(t, h, n, pod, reasons)
		for failed := 0; h.Making(pod.UID); failed = len(h.preemptors[pod.UID].failed) {
			if len(remain) != len(reasons) || err != nil {
				t.Errorf("while room is being made: %v, %v", remain, err)
			}
			synctest.Wait()
			if h.Making(pod.UID) {
				t.Fatal("the attempt is not over when its victims have stopped or failed")
			}
			if len(h.preemptors[pod.UID].failed) == failed {
				remain = nil
				return
			}
			remain, err = fail(t, h, n, pod, reasons)
		}
	})
	return remain, err
}

// TestD25NothingWaits: a victim takes an hour to stop.
func TestD25NothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{pods: []*v1.Pod{newPod("slow", 0, "100m"), newPod("slower", 1, "100m")}}
		critical := newPod("critical", scheduling.SystemCriticalPriority, "200m")
		kill := n.slowly(func() { time.Sleep(time.Hour) })
		h := newHandler(n, kill, record.NewFakeRecorder(10))
		begin := time.Now()
		for range 3 {
			if remain, err := fail(t, h, n, critical, missingCPU(200)); len(remain) != 1 || err != nil {
				t.Errorf("%v, %v", remain, err)
			}
			synctest.Wait()
		}
		if time.Since(begin) != 0 || !h.Making("critical") {
			t.Errorf("waited %v", time.Since(begin))
		}
		if !h.Leaving("slow") || !h.Leaving("slower") || h.Leaving("critical") {
			t.Error("who is being stopped is not known to be leaving")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if h.Making("critical") || len(n.stopped) != 2 {
			t.Errorf("stopped %v after an hour, side by side", n.stopped)
		}
		if h.Leaving("slow") {
			t.Error("still leaving when it has stopped")
		}
		h.Forget("critical")
		if len(h.preemptors) != 0 {
			t.Error("not forgotten")
		}
	})
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
		"an ordinary pod gets no room": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m")}}, pod: newPod("b", 10, "100m"), reasons: missingCPU(100), remain: missingCPU(100),
		},
		"a critical pod gets room": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m"), newPod("b", -1, "100m")}}, pod: critical, reasons: missingCPU(100), stopped: []string{"b"},
		},
		"what preemption cannot help with is returned alone": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m")}}, pod: critical, reasons: append(missingCPU(100), affinity),
			remain: []lifecycle.PredicateFailureReason{affinity},
		},
		"D19: a victim that does not stop is replaced by another": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m"), newPod("b", -1, "100m")}, stuck: []types.UID{"b"}}, pod: critical,
			reasons: missingCPU(100), stopped: []string{"a"},
		},
		"D19: no admission without room": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m")}, stuck: []types.UID{"a"}}, pod: critical, reasons: missingCPU(100), err: "default/a: timed out",
		},
		"D20: static pods stay": {
			node: &node{pods: []*v1.Pod{static(newPod("a", 0, "100m"))}}, pod: critical, reasons: missingCPU(100), err: "no set of running pods frees [cpu: 100]",
		},
		"D21: waits for who is going anyway": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m"), newPod("b", 10, "100m")}, going: []types.UID{"b"}}, pod: critical,
			reasons: missingCPU(100), awaited: []string{"b"},
		},
		"a pod that ran here before keeps its place": {
			node: &node{pods: []*v1.Pod{newPod("a", 0, "100m")}, old: []types.UID{"b"}}, pod: newPod("b", 0, "100m"),
			reasons: append(missingCPU(100), taint),
		},
		"unless the node does not match it any more": {
			node: &node{old: []types.UID{"b"}}, pod: newPod("b", 0, "100m"), reasons: append(missingCPU(100), affinity),
			remain: []lifecycle.PredicateFailureReason{affinity},
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := tc.node
			h := newHandler(n, fakekill.Waiting(n.kill), record.NewFakeRecorder(10))
			remain, err := ask(t, h, n, tc.pod, tc.reasons)
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
				if status.Phase != v1.PodFailed || status.Reason != "Preempting" || condition == nil || condition.Reason != v1.PodReasonTerminationByKubelet {
					t.Errorf("status of a victim: %+v", status)
				}
			}
		})
	}
}
