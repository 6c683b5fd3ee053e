package podworkers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// Workers owns all pod workers. Nothing else starts or stops pods. All methods may be called from any goroutine;
// SyncKnownPods only by one at a time, and not while pods are being added.
type Workers struct {
	cfg Config

	// running ends when the agent stops; every worker's context ends with it.
	running context.Context
	stop    context.CancelFunc
	group   sync.WaitGroup

	mu      sync.Mutex
	workers map[types.UID]*worker
	waiters waiters
	// runningAtStart are the pods that the runtime ran when the agent started, and that have not been stopped since.
	runningAtStart sets.Set[types.UID]
	// removals is the number of removals in progress of what earlier pods left, by UID.
	removals map[types.UID]int
}

// New returns Workers without any pod. It starts no goroutine; the first update does.
func New(cfg Config) *Workers {
	running, stop := context.WithCancel(context.Background())
	return &Workers{
		cfg:            cfg.withDefaults(),
		running:        running,
		stop:           stop,
		workers:        map[types.UID]*worker{},
		waiters:        newWaiters(),
		runningAtStart: sets.New[types.UID](),
		removals:       map[types.UID]int{},
	}
}

// Stop stops all workers, not the pods. It waits until all operations have returned, or until ctx ends, which is an
// error. Later updates are ignored.
func (w *Workers) Stop(ctx context.Context) error {
	w.mu.Lock()
	w.stop()
	w.mu.Unlock()
	done := make(chan struct{})
	go func() {
		w.group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for pod workers to stop: %w", context.Cause(ctx))
	}
}

// UpdatePod passes an update of a pod to its worker, and starts the worker if there is none. It does not wait for the
// worker. Of several updates during an operation the worker processes only the last one; the options of kills are
// merged. Updates of a finished pod are ignored.
func (w *Workers) UpdatePod(ctx context.Context, update Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.update(ctx, update)
}

// Retry repeats the failed termination or clean-up of a pod. The sync loop calls it for a pod that is due and that it
// does not pass to UpdatePod, because no source has the pod or the runtime is down. It has no effect on a pod whose
// termination was not requested, or whose operation is in progress. It does not wait for the worker.
func (w *Workers) Retry(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, known := w.workers[uid]
	if !known {
		return
	}
	state := w.apply(p, podlifecycle.RetryDue{}, eventContext{})
	klog.FromContext(p.ctx).V(4).Info("Retrying the termination of a pod that is due",
		"pod", p.name, "podUID", uid, "phase", state.Phase, "pending", state.Pending)
}

// updateResult is the result of an update.
type updateResult struct {
	answer podkill.Answer
	// waiter identifies the update's Kill.Completed, 0 if there is none.
	waiter podlifecycle.WaiterID
}

// update passes an update to the pod's worker, and creates the worker if there is none. Workers.mu must be held.
func (w *Workers) update(ctx context.Context, update Update) updateResult {
	id := update.identity()
	logger := klog.FromContext(ctx).WithValues("pod", id.name, "podUID", id.uid, "updateType", update.UpdateType)
	if update.Pod == nil && update.UpdateType != kubetypes.SyncPodKill {
		logger.Info("Ignoring a pod update: runtime pods can only be killed")
		return updateResult{}
	}
	if update.Pod != nil && update.RunningPod != nil {
		logger.Info("Ignoring the running pod of a pod update that has a specification")
		update.RunningPod = nil
	}
	if w.running.Err() != nil {
		logger.V(4).Info("Ignoring a pod update: the pod workers have stopped")
		return updateResult{}
	}
	p, known := w.workers[id.uid]
	if !known && w.isRejectedStaticPod(update) {
		logger.V(4).Info("Ignoring a pod update: the pod was never started")
		return updateResult{}
	}
	if !known {
		logger.V(4).Info("Pod is being synced for the first time")
		p = newWorker(ctx, id, w.running)
		w.workers[id.uid] = p
		if resumed, found := w.resumeRequest(&update); found {
			logger.Info("Resuming a termination of an earlier run of the agent", "gracePeriod", *resumed.Kill.GracePeriod,
				"evict", resumed.Kill.Evict)
			w.deliver(logger, p, resumed) //nolint:contextcheck // see below
			if update.UpdateType != kubetypes.SyncPodKill {
				// The resumed request has the same specification.
				return updateResult{answer: podkill.Unchanged}
			}
		}
	}
	//nolint:contextcheck // operations run in the worker's context, not in that of the caller
	return w.deliver(logger, p, update)
}

// isRejectedStaticPod is true when the source of a static pod has dropped it, and the pod was never started, because it
// was rejected. It gets no worker: a worker would have to finish before the pod can be created again, and the pod would
// then start without admission.
func (w *Workers) isRejectedStaticPod(update Update) bool {
	dropped := update.UpdateType == kubetypes.SyncPodKill && update.Pod != nil && update.Kill == nil
	return dropped && kubetypes.IsStaticPod(update.Pod) && w.runtimeStopped(update.Pod.UID)
}

// deliver passes an update to the pod's worker.
func (w *Workers) deliver(logger klog.Logger, p *worker, update Update) updateResult {
	kill, waiter := w.lifecycleKill(update.Kill)
	before, _ := w.cfg.Store.State(p.uid)
	earlier := p.grace.seconds
	state := w.apply(p, w.event(p, &update, kill), eventContext{update: &update})
	w.saveTermination(p, &update, state, earlier)
	logger.V(4).Info("Pod worker received an update", "phase", state.Phase, "cause", state.Termination.Cause, "pending",
		state.Pending)
	return updateResult{answer: answerOf(before, state, update.Pod), waiter: waiter}
}

// event converts an update into an event. It replaces a runtime pod by the worker's specification, if there is one.
func (w *Workers) event(p *worker, update *Update, kill *podlifecycle.Kill) podlifecycle.Event {
	if update.Pod == nil {
		running := update.RunningPod
		if config := p.config(); config != nil {
			update.Pod, update.RunningPod = config, nil
		}
		return podlifecycle.RuntimePodFound{
			FullName: factsOf(running.ToAPIPod()).FullName,
			Config:   optionalFacts(update.Pod),
			Kill:     kill,
		}
	}
	event := podlifecycle.Updated{Type: updateTypes[update.UpdateType], Pod: factsOf(update.Pod), Kill: kill}
	if event.Pod.Completed {
		event.Stopped = w.runtimeStopped(p.uid)
	}
	return event
}

// lifecycleKill converts the options of a kill and registers its waiter.
func (w *Workers) lifecycleKill(kill *KillOptions) (*podlifecycle.Kill, podlifecycle.WaiterID) {
	if kill == nil {
		return nil, 0
	}
	waiter := w.waiters.add(kill.Completed)
	return &podlifecycle.Kill{
		Evict:   kill.Evict,
		Grace:   kill.GracePeriod,
		Waiter:  waiter,
		Amends:  kill.Disruption != nil,
		Resumed: kill.resumed,
	}, waiter
}
