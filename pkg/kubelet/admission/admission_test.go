package admission

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

func pod(uid types.UID) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid), Namespace: "default"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}}}}},
	}
}

// node implements what a gate uses: an allocator whose chain checks the readmission, a runtime, a checkpoint, and pod
// workers.
type node struct {
	readmission  *Readmission
	runs         []*kubecontainer.Pod
	checkpointed types.UID
	// worker is the state of the worker of pod a, if it has one.
	worker   *podlifecycle.State
	reason   string
	seen     map[types.UID]bool
	statuses map[types.UID]v1.PodStatus
	// inProgress are the pods for which preemption is in progress.
	inProgress map[types.UID]bool
	// begun are the pods for which an attempt was begun.
	begun []types.UID
	// active are the pods that use the node.
	active []*v1.Pod
}

func (n *node) InProgress(uid types.UID) bool          { return n.inProgress[uid] }
func (n *node) Begin(_ context.Context, uid types.UID) { n.begun = append(n.begun, uid) }
func (n *node) Forget(uid types.UID)                   { delete(n.inProgress, uid) }
func (n *node) Active() []*v1.Pod                      { return n.active }

func (n *node) AddPod(_ []*v1.Pod, pod *v1.Pod) (bool, string, string) {
	n.seen[pod.UID] = n.readmission.Readmitted(pod)
	return n.reason == "", n.reason, "because"
}

func (n *node) State(uid types.UID) (podlifecycle.State, bool) {
	if n.worker == nil || uid != "a" {
		return podlifecycle.State{}, false
	}
	return *n.worker, true
}

func (n *node) GetContainerResourceAllocation(uid types.UID, container string) (v1.ResourceRequirements, bool) {
	return v1.ResourceRequirements{}, uid == n.checkpointed && container == "c"
}

func (n *node) SetPodStatus(_ klog.Logger, pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	n.statuses[pod.UID] = status
	return status, true
}

func newGate(n *node) (*Gate, *record.FakeRecorder) {
	n.seen, n.statuses = map[types.UID]bool{}, map[types.UID]v1.PodStatus{}
	n.readmission = NewReadmission(n, n)
	n.readmission.SetRunning(n.runs)
	recorder := record.NewFakeRecorder(10)
	waiting := NewWaitingPods(WaitingPodsConfig{
		Pressure: noPressure{}, Victims: n, Status: n, Recorder: recorder, Clock: clock.RealClock{},
		Active: n.Active, ShuttingDown: func() bool { return false }, MaxWait: func() time.Duration { return 0 },
	})
	return NewGate(n, n.readmission, waiting, NewRejector(recorder, n)), recorder
}

// noPressure admits every pod.
type noPressure struct{}

func (noPressure) AdmitOrWait(*v1.Pod) (policy.Verdict, string) { return policy.Admitted, "" }

func container(state kubecontainer.State) *kubecontainer.Container {
	return &kubecontainer.Container{State: state}
}

func TestReadmission(t *testing.T) {
	type containers = []*kubecontainer.Container
	running, exited := container(kubecontainer.ContainerStateRunning), container(kubecontainer.ContainerStateExited)
	runs := func(pod kubecontainer.Pod) node { return node{runs: []*kubecontainer.Pod{&pod}} }
	for name, tc := range map[string]struct {
		node node
		want bool
	}{
		"a new pod":                        {node{}, false},
		"a container runs":                 {runs(kubecontainer.Pod{ID: "a", Containers: containers{exited, running}}), true},
		"only its sandbox runs":            {runs(kubecontainer.Pod{ID: "a", Sandboxes: containers{running}}), true},
		"all containers have ended":        {runs(kubecontainer.Pod{ID: "a", Containers: containers{exited}}), false},
		"another pod runs":                 {runs(kubecontainer.Pod{ID: "b", Containers: containers{running}}), false},
		"it was admitted before a restart": {node{checkpointed: "a"}, true},
		"it has a worker":                  {node{worker: &podlifecycle.State{Phase: podlifecycle.Syncing}}, true},
		"its worker stops it":              {node{worker: &podlifecycle.State{Phase: podlifecycle.Terminating}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := tc.node
			gate, _ := newGate(&n)
			gate.Admit(t.Context(), pod("a"))
			if n.seen["a"] != tc.want {
				t.Errorf("readmitted %v, want %v", n.seen["a"], tc.want)
			}
			if n.readmission.Readmitted(pod("a")) {
				t.Error("the pod is still readmitted after its admission: a resize would be admitted without a check")
			}
		})
	}
}

// A pod that ran before the agent was started is readmitted once. If its UID is used again later, that is a new pod.
func TestReadmissionIsForTheFirstAdmissionOnly(t *testing.T) {
	running := container(kubecontainer.ContainerStateRunning)
	n := node{runs: []*kubecontainer.Pod{{ID: "a", Containers: []*kubecontainer.Container{running}}}}
	gate, _ := newGate(&n)
	for i, want := range []bool{true, false} {
		if gate.Admit(t.Context(), pod("a")); n.seen["a"] != want {
			t.Errorf("admission %d: readmitted %v, want %v", i+1, n.seen["a"], want)
		}
	}
}

// Before the runtime has listed its pods, a running pod could be rejected: the sync loop must not start.
func TestReadmissionIsUnhealthyUntilTheRuntimeHasListedItsPods(t *testing.T) {
	n := &node{}
	r := NewReadmission(n, n)
	if ok, err := r.Healthy(); ok || err == nil {
		t.Errorf("healthy before the runtime has listed its pods: %v", err)
	}
	r.SetRunning(nil)
	if ok, err := r.Healthy(); !ok || err != nil {
		t.Errorf("not healthy after the runtime has listed its pods: %v", err)
	}
}

func TestRefusalIsPublished(t *testing.T) {
	n := node{reason: lifecycle.OutOfCPU}
	gate, recorder := newGate(&n)
	if gate.Admit(t.Context(), pod("a")) {
		t.Fatal("admitted")
	}
	status := n.statuses["a"]
	if status.Phase != v1.PodFailed || status.Reason != "OutOfcpu" || status.Message != "Pod was rejected: because" ||
		status.QOSClass != v1.PodQOSBurstable {
		t.Errorf("status %+v", status)
	}
	if event := <-recorder.Events; event != "Warning OutOfcpu because" {
		t.Errorf("event %q", event)
	}
}

func TestRejectionLabelIsBounded(t *testing.T) {
	for reason, want := range map[string]string{
		"Evicted": "Evicted", "OutOfmemory": "OutOfmemory", "OutOfexample.com/gpu": "OutOfExtendedResources",
		"whatever": "Other", "": "Other",
	} {
		if got := rejectionLabel(reason); got != want {
			t.Errorf("%q is counted as %q, want %q", reason, got, want)
		}
	}
}

type named string

func (named) Admit(*lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	return lifecycle.PodAdmitResult{}
}

// fixedResult always returns the same result.
type fixedResult struct{ result lifecycle.PodAdmitResult }

// attempts implements Attempts.
type attempts struct{ inProgress, failed bool }

func (a attempts) InProgress(types.UID) bool { return a.inProgress }
func (a attempts) Failed(types.UID) bool     { return a.failed }

func (f fixedResult) Admit(*lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult { return f.result }

// TestD38PreemptionPrecedesAllocation: the early result of the predicates counts while an attempt is in progress, and
// when one has failed.
func TestD38PreemptionPrecedesAllocation(t *testing.T) {
	critical, ordinary := pod("critical"), pod("ordinary")
	priority := int32(2_000_000_000)
	critical.Spec.Priority = &priority
	type result = lifecycle.PodAdmitResult
	full, failed := result{Reason: lifecycle.OutOfCPU}, result{Reason: lifecycle.UnexpectedAdmissionError}
	admitted := result{Admit: true}
	for name, tc := range map[string]struct {
		pod        *v1.Pod
		predicates result
		attempts   attempts
		want       result
	}{
		"it fits":                           {critical, admitted, attempts{}, admitted},
		"an attempt is in progress":         {critical, full, attempts{inProgress: true}, full},
		"an attempt has failed":             {critical, failed, attempts{failed: true}, failed},
		"it fits after a failed attempt":    {critical, admitted, attempts{failed: true}, admitted},
		"preemption cannot help":            {critical, result{Reason: "NodeAffinity"}, attempts{}, admitted},
		"there are no victims":              {critical, failed, attempts{}, admitted},
		"an ordinary pod that does not fit": {ordinary, full, attempts{}, admitted},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewEarlyPreemption(fixedResult{tc.predicates}, tc.attempts)
			if got := h.Admit(&lifecycle.PodAdmitAttributes{Pod: tc.pod}); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestChainOrder(t *testing.T) {
	chain := Chain{
		Shutdown: named("shutdown"), DeclaredFeatures: named("declared"), PodFeatures: named("features"),
		AppArmor: named("apparmor"), Predicates: named("predicates"), Resources: named("resources"),
		EarlyPreemption: named("early"), Sysctls: named("sysctls"), Pressure: named("pressure"), Resize: named("resize"),
	}
	var order []string
	for _, h := range chain.Handlers() {
		order = append(order, string(h.(named)))
	}
	want := []string{
		"resize", "pressure", "sysctls", "early", "resources", "predicates", "apparmor", "features", "declared", "shutdown",
	}
	if !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
	chain.DeclaredFeatures = nil
	if n := len(chain.Handlers()); n != len(want)-1 {
		t.Errorf("%d handlers: a nil handler is not left out", n)
	}
}
