// Package preemption stops pods of lower priority so that a critical pod fits on the node. Package plan chooses the
// victims; Handler turns an admission failure into a plan and requests their stop from the pod workers. It does not
// admit the pod: admission runs again when the victims have stopped.
package preemption

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// Pods reports the state of the admission of pods.
type Pods interface {
	// IsWaiting is true for a pod that waits for its admission: it uses no resources of the node.
	IsWaiting(uid types.UID) bool
	// Readmitted is true for a pod that ran on this node before the agent was restarted.
	Readmitted(pod *v1.Pod) bool
}

// Lifecycle reports the state of the termination of pods.
type Lifecycle interface {
	IsPodTerminationRequested(uid types.UID) bool
	CouldHaveRunningContainers(uid types.UID) bool
}

// Config is the configuration of a Handler. All fields are required, except Planned.
type Config struct {
	Pods      Pods
	Lifecycle Lifecycle
	Kill      podkill.Func
	Recorder  record.EventRecorder
	// EscalationExhausted is true for a pod that is still terminating after the last escalation step.
	EscalationExhausted func(uid types.UID) bool
	// OnAttemptEnd is called when an attempt has ended, so that the pod goes through admission again at once. It must not
	// block and must not call the Handler.
	OnAttemptEnd func()
	// Planned is called with each plan: the victims to stop and those that are terminating already, or the error if no set
	// of victims suffices. It must return at once and must not call the Handler. Optional.
	Planned func(pod *v1.Pod, stop, await []*v1.Pod, err error)
}

// Handler preempts pods for critical pods. A failed admission leads to a plan; Begin starts an attempt, which stops the
// victims. Except for Run no method blocks; admission of the preemptor runs again after the end of the attempt. (Stock
// blocks all admissions until the slowest victim has stopped.) All methods are safe for concurrent use.
type Handler struct {
	Config

	// running ends when the agent stops; work counts the goroutines of attempts.
	running context.Context
	stop    context.CancelFunc
	work    sync.WaitGroup

	mu sync.Mutex
	// preemptors are the pods with an attempt that is planned, in progress or ended. Forget removes them.
	preemptors map[types.UID]*preemptor
}

// NewHandler returns a handler without attempts. It begins attempts until Run has ended.
func NewHandler(cfg Config) *Handler {
	running, stop := context.WithCancel(context.Background())
	return &Handler{Config: cfg, running: running, stop: stop, preemptors: map[types.UID]*preemptor{}}
}

// Run waits until ctx ends, and then until the attempts in progress have ended. Afterwards the Handler requests no stop
// any more. Run must return before the pod workers are stopped, and may be called once.
func (h *Handler) Run(ctx context.Context) {
	<-ctx.Done()
	h.mu.Lock()
	h.stop()
	h.mu.Unlock()
	h.work.Wait()
}

// InProgress reports whether an attempt for the pod is planned or in progress.
func (h *Handler) InProgress(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.preemptors[uid]
	return p != nil && p.attempt != nil
}

// IsVictim reports whether an attempt in progress stops or awaits the pod.
func (h *Handler) IsVictim(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.preemptors {
		if p.attempt.isVictim(uid) {
			return true
		}
	}
	return false
}

// Failed reports whether victims of an earlier attempt for the pod did not stop.
func (h *Handler) Failed(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.preemptors[uid]
	return p != nil && len(p.failed) > 0
}

// Forget ends the attempt for a pod that was admitted, rejected or deleted, and deletes its record. It stops no further
// victim; terminations that have begun continue.
func (h *Handler) Forget(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.preemptors[uid]; p != nil && p.attempt.begun() {
		p.attempt.cancel()
	}
	delete(h.preemptors, uid)
}
