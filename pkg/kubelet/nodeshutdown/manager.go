package nodeshutdown

import (
	"context"
	"errors"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
)

// ReasonNotAdmitted is why a pod is rejected that comes while the machine goes down; it is stock's.
const ReasonNotAdmitted = "NodeShutdown"

var errShuttingDown = errors.New("node is shutting down")

// Manager stops the pods when the machine goes down. Its methods may be called by anybody at any time.
type Manager struct {
	cfg Config

	// work counts the goroutines that Start began.
	work sync.WaitGroup

	mu sync.Mutex
	// down is true from the announcement that the machine goes down until it is withdrawn.
	down bool
	// late is true when the agent was started while the machine was going down: pods that ran before are yet to come, to
	// be stopped.
	late bool
	// returning are the pods that are being stopped only to be started again.
	returning sets.Set[types.UID]
}

// New returns a manager that does nothing before Start.
func New(cfg Config) *Manager {
	cfg.Periods = plan.Ordered(cfg.Periods)
	return &Manager{cfg: cfg, returning: sets.New[types.UID]()}
}

// Start takes the lock, if there is a login manager, and goes on in the background until ctx ends: also trying to reach
// a login manager that does not answer. To be called once, when pods can be stopped.
func (m *Manager) Start(ctx context.Context) {
	if len(m.cfg.Periods) == 0 {
		return
	}
	m.showLast(ctx)
	w := &watch{Manager: m, periods: m.cfg.Periods}
	w.connect(ctx, true)
	m.work.Go(func() { w.run(ctx) })
}

// Wait returns when nothing that Start began is under way any more. That is so soon after the context of Start has
// ended; pods that are being stopped then go on stopping.
func (m *Manager) Wait() { m.work.Wait() }

// ShutdownStatus is an error while the machine goes down.
func (m *Manager) ShutdownStatus() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errShuttingDown
	}
	return nil
}

// Admit implements lifecycle.PodAdmitHandler: no pod enters a machine that goes down. A pod that ran before the agent
// was started does not enter: it is here, and rejecting it would fail it although the shutdown may be cancelled. When
// the agent was started while the machine was going down, pods that start again with the node are let in too, not to be
// failed.
func (m *Manager) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	m.mu.Lock()
	down, late := m.down, m.late
	m.mu.Unlock()
	if !down || m.cfg.Pods.Readmitted(attrs.Pod) || late && plan.Returns(attrs.Pod) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return lifecycle.PodAdmitResult{Reason: ReasonNotAdmitted, Message: "Pod was rejected as the node is shutting down."}
}

// RestartsAfterShutdown is true while the pod is stopped only because the machine shuts down, and will start again with
// it: its phase must not become terminal. It is false for a pod that was deleted meanwhile.
func (m *Manager) RestartsAfterShutdown(pod *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return pod.DeletionTimestamp == nil && m.returning.Has(pod.UID)
}

// PodStopped is called when all resources of the pod are released. A later pod with the same UID is a new instance.
func (m *Manager) PodStopped(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.returning.Delete(uid)
}

func (m *Manager) setDown(down, late bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down, m.late = down, late
}

// returns notes that the pod is about to be stopped, and says whether it starts again. A pod whose end somebody else
// asked for does not.
func (m *Manager) returns(pod *v1.Pod) bool {
	if !plan.Returns(pod) || m.cfg.Pods.Terminating(pod.UID) {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.returning.Insert(pod.UID)
	return true
}

// forgetEnded forgets pods that have ended on another way than through Stopped: the source dropped them before they had
// begun.
func (m *Manager) forgetEnded() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.returning {
		if !m.cfg.Pods.Terminating(uid) {
			m.returning.Delete(uid)
		}
	}
}
