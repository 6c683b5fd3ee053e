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

// node is what a gate works on: an allocator that asks the readmission as a handler of the chain would, a runtime, a checkpoint, a worker.
type node struct {
	readmission  *Readmission
	runs         []*kubecontainer.Pod
	checkpointed types.UID
	// known is the state of the worker of the pod called a, if it has one.
	known    *podlifecycle.State
	refuse   string
	seen     map[types.UID]bool
	statuses map[types.UID]v1.PodStatus
	// making are the pods for which others are being stopped.
	making map[types.UID]bool
	// begun are the pods for which stopping others was begun.
	begun []types.UID
	// active are the pods that use the node.
	active []*v1.Pod
}

func (n *node) Making(uid types.UID) bool              { return n.making[uid] }
func (n *node) Begin(_ context.Context, uid types.UID) { n.begun = append(n.begun, uid) }
func (n *node) Forget(uid types.UID)                   { delete(n.making, uid) }
func (n *node) Active() []*v1.Pod                      { return n.active }

func (n *node) AddPod(_ []*v1.Pod, pod *v1.Pod) (bool, string, string) {
	n.seen[pod.UID] = n.readmission.Readmitted(pod)
	return n.refuse == "", n.refuse, "because"
}

func (n *node) State(uid types.UID) (podlifecycle.State, bool) {
	if n.known == nil || uid != "a" {
		return podlifecycle.State{}, false
	}
	return *n.known, true
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
	room := NewRoom(RoomConfig{
		Pressure: calm{}, Victims: n, Status: n, Recorder: recorder, Clock: clock.RealClock{},
		Active: n.Active, GoingDown: func() bool { return false }, Bound: func() time.Duration { return 0 },
	})
	return NewGate(n, n.readmission, room, NewRejector(recorder, n)), recorder
}

// calm has no pressure.
type calm struct{}

func (calm) Judge(*v1.Pod) (policy.Verdict, string) { return policy.Admitted, "" }

func container(state kubecontainer.State) *kubecontainer.Container {
	return &kubecontainer.Container{State: state}
}

func TestReadmission(t *testing.T) {
	running, exited := container(kubecontainer.ContainerStateRunning), container(kubecontainer.ContainerStateExited)
	for name, tc := range map[string]struct {
		node node
		want bool
	}{
		"a new pod":                        {node{}, false},
		"a container runs":                 {node{runs: []*kubecontainer.Pod{{ID: "a", Containers: []*kubecontainer.Container{exited, running}}}}, true},
		"only its sandbox is up":           {node{runs: []*kubecontainer.Pod{{ID: "a", Sandboxes: []*kubecontainer.Container{running}}}}, true},
		"everything of it has ended":       {node{runs: []*kubecontainer.Pod{{ID: "a", Containers: []*kubecontainer.Container{exited}}}}, false},
		"another pod runs":                 {node{runs: []*kubecontainer.Pod{{ID: "b", Containers: []*kubecontainer.Container{running}}}}, false},
		"it was admitted before a restart": {node{checkpointed: "a"}, true},
		"it has a worker":                  {node{known: &podlifecycle.State{Phase: podlifecycle.Syncing}}, true},
		"its worker stops it":              {node{known: &podlifecycle.State{Phase: podlifecycle.Terminating}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			n := tc.node
			gate, _ := newGate(&n)
			gate.Admit(t.Context(), pod("a"))
			if n.seen["a"] != tc.want {
				t.Errorf("readmitted %v, want %v", n.seen["a"], tc.want)
			}
			if n.readmission.Readmitted(pod("a")) {
				t.Error("it is still readmitted after its admission: a resize would be waved through")
			}
		})
	}
}

// A pod that ran before the agent was started is readmitted once. Should its UID come again after its end it is a new pod.
func TestReadmissionIsForTheFirstAdmissionOnly(t *testing.T) {
	n := node{runs: []*kubecontainer.Pod{{ID: "a", Containers: []*kubecontainer.Container{container(kubecontainer.ContainerStateRunning)}}}}
	gate, _ := newGate(&n)
	for i, want := range []bool{true, false} {
		if gate.Admit(t.Context(), pod("a")); n.seen["a"] != want {
			t.Errorf("admission %d: readmitted %v, want %v", i+1, n.seen["a"], want)
		}
	}
}

// Before the runtime has listed its pods one that runs could be rejected: the sync loop must not begin.
func TestReadmissionIsUnhealthyUntilTheRuntimeHasListedItsPods(t *testing.T) {
	n := &node{}
	r := NewReadmission(n, n)
	if ok, err := r.Healthy(); ok || err == nil {
		t.Errorf("healthy before the runtime has answered: %v", err)
	}
	r.SetRunning(nil)
	if ok, err := r.Healthy(); !ok || err != nil {
		t.Errorf("not healthy although the runtime has answered: %v", err)
	}
}

func TestRefusalIsPublished(t *testing.T) {
	n := node{refuse: lifecycle.OutOfCPU}
	gate, recorder := newGate(&n)
	if gate.Admit(t.Context(), pod("a")) {
		t.Fatal("admitted")
	}
	status := n.statuses["a"]
	if status.Phase != v1.PodFailed || status.Reason != "OutOfcpu" || status.Message != "Pod was rejected: because" || status.QOSClass != v1.PodQOSBurstable {
		t.Errorf("status %+v", status)
	}
	if event := <-recorder.Events; event != "Warning OutOfcpu because" {
		t.Errorf("event %q", event)
	}
}

func TestRejectionLabelIsBounded(t *testing.T) {
	for reason, want := range map[string]string{
		"Evicted": "Evicted", "OutOfmemory": "OutOfmemory", "OutOfexample.com/gpu": "OutOfExtendedResources", "whatever": "Other", "": "Other",
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

// fixed answers what it is told to.
type fixed struct{ answer lifecycle.PodAdmitResult }

// attempts are the states of attempts to make room.
type attempts struct{ making, failed bool }

func (a attempts) Making(types.UID) bool { return a.making }
func (a attempts) Failed(types.UID) bool { return a.failed }

func (f fixed) Admit(*lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult { return f.answer }

// TestD38RoomIsMadeBeforeResourcesAreAllocated: what the predicates say ahead of their turn counts while room is being made, and when
// that has failed.
func TestD38RoomIsMadeBeforeResourcesAreAllocated(t *testing.T) {
	critical, ordinary := pod("critical"), pod("ordinary")
	priority := int32(2_000_000_000)
	critical.Spec.Priority = &priority
	type answer = lifecycle.PodAdmitResult
	full, failed, yes := answer{Reason: lifecycle.OutOfCPU}, answer{Reason: lifecycle.UnexpectedAdmissionError}, answer{Admit: true}
	for name, tc := range map[string]struct {
		pod        *v1.Pod
		predicates answer
		attempts   attempts
		want       answer
	}{
		"there is room":                        {critical, yes, attempts{}, yes},
		"room is being made":                   {critical, full, attempts{making: true}, full},
		"room could not be made":               {critical, failed, attempts{failed: true}, failed},
		"there is room although that failed":   {critical, yes, attempts{failed: true}, yes},
		"what preemption cannot help with":     {critical, answer{Reason: "NodeAffinity"}, attempts{}, yes},
		"nobody is there who could be stopped": {critical, failed, attempts{}, yes},
		"an ordinary pod that does not fit in": {ordinary, full, attempts{}, yes},
	} {
		t.Run(name, func(t *testing.T) {
			h := NewRoomFirst(fixed{tc.predicates}, tc.attempts)
			if got := h.Admit(&lifecycle.PodAdmitAttributes{Pod: tc.pod}); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestChainOrder(t *testing.T) {
	chain := Chain{
		Shutdown: named("shutdown"), DeclaredFeatures: named("declared"), PodFeatures: named("features"), AppArmor: named("apparmor"),
		Predicates: named("predicates"), Resources: named("resources"), Sysctls: named("sysctls"), RoomFirst: named("room"), Pressure: named("pressure"), Resize: named("resize"),
	}
	var order []string
	for _, h := range chain.Handlers() {
		order = append(order, string(h.(named)))
	}
	want := []string{"resize", "pressure", "sysctls", "room", "resources", "predicates", "apparmor", "features", "declared", "shutdown"}
	if !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
	chain.DeclaredFeatures = nil
	if n := len(chain.Handlers()); n != len(want)-1 {
		t.Errorf("%d handlers, a missing one is not left out", n)
	}
}
