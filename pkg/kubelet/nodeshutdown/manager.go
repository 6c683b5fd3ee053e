package nodeshutdown

import (
	"context"
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
)

// ReasonNotAdmitted is stock's reason of a pod that is rejected during a shutdown.
const ReasonNotAdmitted = "NodeShutdown"

var errShuttingDown = errors.New("node is shutting down")

// Manager stops the pods when the machine shuts down. Its methods may be called concurrently, and before Start.
type Manager struct {
	cfg Config

	// work has the goroutines that Start has started, stores those that write the state file, which Wait does not wait
	// for: a disk may hang.
	work, stores sync.WaitGroup

	mu sync.Mutex
	// shuttingDown is true from the announcement of a shutdown until it is cancelled.
	shuttingDown bool
	// startedDuringShutdown is true if the agent was started while the machine was shutting down: the sources have not
	// reported all pods yet that have to be stopped.
	startedDuringShutdown bool
	// restarting are the pods that are being stopped and start again with the node.
	restarting sets.Set[types.UID]
	// timesKnown is true once the metrics have the times of a shutdown of this run.
	timesKnown bool
	// stored is closed when the last use of the state file has ended; nil before the first one.
	stored <-chan struct{}
}

// New returns a manager. It starts no goroutine and does not connect to logind.
func New(cfg Config) *Manager {
	cfg.Periods = plan.Ordered(cfg.Periods)
	return &Manager{cfg: cfg, restarting: sets.New[types.UID]()}
}

// startPatience is how long Start waits for logind. Static pods do not start before it returns.
const startPatience = 5 * time.Second

// Start takes the delay lock, and then handles shutdowns in the background until ctx ends. If logind cannot be reached,
// or does not answer for some seconds, it goes on trying in the background. Start must be called once, when the pod
// workers can stop pods. Without periods it does nothing.
func (m *Manager) Start(ctx context.Context) {
	if len(m.cfg.Periods) == 0 {
		return
	}
	m.publishStoredTimes(ctx)
	w := &watch{Manager: m, periods: m.cfg.Periods}
	tried := make(chan struct{})
	m.work.Go(func() {
		w.connect(ctx)
		close(tried)
		w.run(ctx)
	})
	timer := m.cfg.Clock.NewTimer(startPatience)
	defer timer.Stop()
	select {
	case <-tried:
	case <-ctx.Done():
	case <-timer.C():
		klog.FromContext(ctx).Error(nil, "Logind does not answer, going on without it meanwhile", "waited", startPatience)
	}
}

// Wait returns when all goroutines of Start have ended, which is soon after its context has ended. It does not wait for
// pods that are terminating then; their termination continues.
func (m *Manager) Wait() { m.work.Wait() }

// ShutdownStatus returns an error while the machine shuts down, which becomes a reason why the node is not Ready.
func (m *Manager) ShutdownStatus() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.shuttingDown {
		return errShuttingDown
	}
	return nil
}

// Admit implements lifecycle.PodAdmitHandler. It rejects pods during a shutdown, with two exceptions. A pod that ran
// before the agent was started is admitted: a rejection would fail it, although the shutdown may be cancelled. If the
// agent was started during the shutdown, pods that restart after it are admitted too, so that they are not failed.
func (m *Manager) Admit(attrs *lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	m.mu.Lock()
	shuttingDown, startedDuring := m.shuttingDown, m.startedDuringShutdown
	m.mu.Unlock()
	if !shuttingDown || m.cfg.Pods.Readmitted(attrs.Pod) || startedDuring && plan.RestartsAfterShutdown(attrs.Pod) {
		return lifecycle.PodAdmitResult{Admit: true}
	}
	return lifecycle.PodAdmitResult{Reason: ReasonNotAdmitted, Message: "Pod was rejected as the node is shutting down."}
}

// RestartsAfterShutdown returns true for a pod that is being stopped only because the machine shuts down, and that
// starts again with the node: its phase must not become terminal. It returns false if the pod was deleted meanwhile.
func (m *Manager) RestartsAfterShutdown(pod *v1.Pod) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return pod.DeletionTimestamp == nil && m.restarting.Has(pod.UID)
}

// PodStopped is called when all resources of the pod are released. A later pod with the same UID is a new instance.
func (m *Manager) PodStopped(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restarting.Delete(uid)
}

func (m *Manager) setShuttingDown(shuttingDown, startedDuring bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shuttingDown, m.startedDuringShutdown = shuttingDown, startedDuring
}

// markRestarting records a pod that is about to be stopped and starts again with the node, and returns true for it. It
// returns false for other pods, and for one that is terminating already for another reason than a shutdown.
func (m *Manager) markRestarting(pod *v1.Pod) bool {
	if !plan.RestartsAfterShutdown(pod) {
		return false
	}
	terminating := m.cfg.Pods.Terminating(pod.UID)
	m.mu.Lock()
	defer m.mu.Unlock()
	if terminating && !m.restarting.Has(pod.UID) {
		return false
	}
	m.restarting.Insert(pod.UID)
	return true
}

// removeEnded removes the records of pods that have ended without a call of PodStopped: their source removed them
// before their worker had begun.
func (m *Manager) removeEnded() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid := range m.restarting {
		if !m.cfg.Pods.Terminating(uid) {
			m.restarting.Delete(uid)
		}
	}
}
