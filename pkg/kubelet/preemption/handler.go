// Package preemption makes room for a critical pod that does not fit on the node, by stopping pods that matter less.
// Package plan chooses them; Handler turns an admission failure into a plan, and has the victims stopped by the pod
// workers. It admits nothing: the pod is judged again when its victims have stopped.
package preemption

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// Pods answers questions about pods.
type Pods interface {
	// Waits is true for a pod that waits for its admission: nothing of it is on the node.
	Waits(uid types.UID) bool
	// Readmitted is true for a pod that ran on this node before the agent was restarted.
	Readmitted(pod *v1.Pod) bool
}

// Lifecycle answers how far pods are on their way.
type Lifecycle interface {
	IsPodTerminationRequested(uid types.UID) bool
	CouldHaveRunningContainers(uid types.UID) bool
}

// Config is what a Handler works with. All fields are required.
type Config struct {
	Pods      Pods
	Lifecycle Lifecycle
	Kill      podkill.Func
	Recorder  record.EventRecorder
	// EverythingTried is true for a pod that is still terminating after everything was tried to stop it.
	EverythingTried func(uid types.UID) bool
	// Over is called when an attempt to make room is over, so that the pod is judged again at once. It must not block,
	// nor call the Handler.
	Over func()
}

// Handler makes room for critical pods. It never blocks: victims stop beside it, and the pod is judged again when they
// have (stock stands still for as long as the slowest victim takes, with the lock of all admissions held). No victim
// is stopped before Begin: what a failed admission leads to is a plan. All methods are safe for concurrent use.
type Handler struct {
	Config

	// running ends when the agent stops, work counts the goroutines that end with it.
	running context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu sync.Mutex
	// preemptors are the pods for which room is being made, or was to be made.
	preemptors map[types.UID]*preemptor
}

// NewHandler returns a handler without any plan. It works until Run returns.
func NewHandler(cfg Config) *Handler {
	running, stop := context.WithCancel(context.Background())
	return &Handler{Config: cfg, running: running, stop: stop, preemptors: map[types.UID]*preemptor{}}
}

// Run waits until ctx ends, and then for what the handler does beside its callers. It must end before the pod workers do: after it no
// victim is stopped. To be called once.
func (h *Handler) Run(ctx context.Context) {
	<-ctx.Done()
	h.mu.Lock()
	h.stop()
	h.mu.Unlock()
	h.work.Wait()
}

// Making reports whether room for the pod is planned or being made at this moment.
func (h *Handler) Making(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.preemptors[uid]
	return p != nil && p.attempt != nil
}

// Leaving reports whether the pod is being stopped at this moment to make room for another.
func (h *Handler) Leaving(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.preemptors {
		if p.attempt.has(uid) {
			return true
		}
	}
	return false
}

// Failed reports whether victims of an earlier attempt to make room for the pod have not stopped.
func (h *Handler) Failed(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.preemptors[uid]
	return p != nil && len(p.failed) > 0
}

// Forget drops what is known of a pod that was admitted, rejected or deleted, and ends its attempt: no further victim
// is stopped for it. Victims that are being stopped go on to stop.
func (h *Handler) Forget(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.preemptors[uid]; p != nil && p.attempt.begun() {
		p.attempt.cancel()
	}
	delete(h.preemptors, uid)
}
