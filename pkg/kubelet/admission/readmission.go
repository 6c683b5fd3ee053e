package admission

import (
	"errors"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// Allocations returns what was allocated to a container when its pod was admitted, also by an earlier process.
type Allocations interface {
	GetContainerResourceAllocation(uid types.UID, container string) (v1.ResourceRequirements, bool)
}

// Lifecycle returns the state of a pod that has a worker.
type Lifecycle interface {
	State(uid types.UID) (podlifecycle.State, bool)
}

// Readmission reports whether the pod whose admission is in progress is on this node already: from before the agent was
// restarted, or from before its source removed it and added it again. Such a pod has been admitted before, so pressure,
// taints and lack of resources are no reason to stop it now (kubernetes/kubernetes#83612: stock kills all BestEffort
// pods of a node whose kubelet is restarted under memory pressure). Stock keeps the resources of such pods in its
// allocation checkpoint for the same purpose.
//
// An admission does not query the runtime, which may be slow while the sync loop waits: SetRunning is called once,
// before the first admission.
//
// It covers one admission at a time: a later resize of the pod is no readmission.
type Readmission struct {
	allocations Allocations
	lifecycle   Lifecycle

	mu sync.Mutex
	// running are the pods that ran when the agent started and have not been admitted since, nil before SetRunning.
	running sets.Set[types.UID]
	current types.UID
}

// NewReadmission returns a Readmission that reads the allocation checkpoint and the states of the pod workers.
func NewReadmission(allocations Allocations, lifecycle Lifecycle) *Readmission {
	return &Readmission{allocations: allocations, lifecycle: lifecycle}
}

// SetRunning records the pods of the runtime. It must be called once, before any pod is admitted: pods that run at that
// time were started by an earlier process.
func (r *Readmission) SetRunning(pods []*kubecontainer.Pod) {
	running := sets.New[types.UID]()
	for _, pod := range pods {
		if hasRunning(pod) {
			running.Insert(pod.ID)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = running
}

var errRunningUnknown = errors.New("the runtime has not listed its pods yet")

// Healthy is false until SetRunning was called. No pod may be admitted before, because a running pod could be rejected.
func (r *Readmission) Healthy() (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		return false, errRunningUnknown
	}
	return true, nil
}

// Readmitted is true while the readmission of the given pod is in progress.
func (r *Readmission) Readmitted(pod *v1.Pod) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.current != "" && r.current == pod.UID
}

// begin begins the admission of a pod, as a readmission if the pod is on this node already. The returned function ends
// the admission.
func (r *Readmission) begin(pod *v1.Pod) (end func()) {
	onNode := r.allocated(pod) || r.syncing(pod.UID)
	r.mu.Lock()
	defer r.mu.Unlock()
	if onNode || r.running.Has(pod.UID) {
		r.current = pod.UID
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.current = ""
		// From now on the pod has a worker, or it was rejected. If its UID is used again later, that is a new pod.
		r.running.Delete(pod.UID)
	}
}

func (r *Readmission) allocated(pod *v1.Pod) bool {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if _, ok := r.allocations.GetContainerResourceAllocation(pod.UID, c.Name); ok {
			return true
		}
	}
	return false
}

func (r *Readmission) syncing(uid types.UID) bool {
	state, known := r.lifecycle.State(uid)
	return known && !state.TerminationRequested()
}

// hasRunning is true when a container or a sandbox of the pod is running.
func hasRunning(pod *kubecontainer.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Containers, pod.Sandboxes), func(c *kubecontainer.Container) bool {
		return c.State == kubecontainer.ContainerStateRunning
	})
}
