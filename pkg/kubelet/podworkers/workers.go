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

// Workers is the owner of all pod workers. Only here are pods started and stopped. All methods may be called from any
// goroutine, SyncKnownPods only by one at a time and not while pods are being added.
type Workers struct {
	cfg Config

	// running ends when the agent stops; every worker's context ends with it.
	running context.Context
	stop    context.CancelFunc
	group   sync.WaitGroup

	mu      sync.Mutex
	workers map[types.UID]*worker
	waiters waiters
	// ranAtStart are the pods that ran when the agent started.
	ranAtStart sets.Set[types.UID]
}

// New returns workers without any pod. Nothing runs until the first update.
func New(cfg Config) *Workers {
	running, stop := context.WithCancel(context.Background())
	return &Workers{
		cfg:        cfg.withDefaults(),
		running:    running,
		stop:       stop,
		workers:    map[types.UID]*worker{},
		waiters:    newWaiters(),
		ranAtStart: sets.New[types.UID](),
	}
}

// Stop ends all workers, not the pods, and waits until the last operation has returned or ctx ends. Updates that come
// later are ignored.
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

// UpdatePod gives a pod to its worker, or asks it to stop the pod. It does not wait for the worker; of several updates
// that come while the worker is busy it sees only the last one, but no kill is lost. Updates of a pod that has finished
// are ignored.
func (w *Workers) UpdatePod(ctx context.Context, update Update) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.update(ctx, update)
}

// Retry repeats what failed, of a pod that has to be stopped: for one that is due while no source names it, so that
// UpdatePod cannot be called. Whether there is anything to repeat depends on the pod's life alone; a pod that need not
// be stopped, or whose worker is busy, stays as it is. It does not wait for the worker.
func (w *Workers) Retry(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, known := w.workers[uid]
	if !known {
		return
	}
	state := w.apply(p, podlifecycle.RetryDue{}, eventContext{})
	klog.FromContext(p.ctx).V(4).Info("Pod is due and no source names it",
		"pod", p.name, "podUID", uid, "phase", state.Phase, "pending", state.Pending)
}

// updateResult is what became of an update.
type updateResult struct {
	answer podkill.Answer
	// waiter is the identity under which the update's Kill.Completed waits, 0 if it does not.
	waiter podlifecycle.WaiterID
}

// update gives an update to the pod's worker, which is made if there is none. Workers.mu must be held.
func (w *Workers) update(ctx context.Context, update Update) updateResult {
	who := update.identity()
	logger := klog.FromContext(ctx).WithValues("pod", who.name, "podUID", who.uid, "updateType", update.UpdateType)
	if update.Pod == nil && update.UpdateType != kubetypes.SyncPodKill {
		logger.Info("Pod update is ignored, runtime pods can only be killed")
		return updateResult{}
	}
	if update.Pod != nil && update.RunningPod != nil {
		logger.Info("Pod update brought a running pod beside the pod, which is ignored")
		update.RunningPod = nil
	}
	if w.running.Err() != nil {
		logger.V(4).Info("Pod update is ignored, the pod workers have stopped")
		return updateResult{}
	}
	p, known := w.workers[who.uid]
	if !known && w.neverHere(update) {
		logger.V(4).Info("Pod update is ignored, there is nothing to stop")
		return updateResult{}
	}
	if !known {
		logger.V(4).Info("Pod is being synced for the first time")
		p = newWorker(ctx, who, w.running)
		w.workers[who.uid] = p
		if again, begun := w.resumeRequest(&update); begun {
			logger.Info("Going on with a termination that an earlier run of the agent has begun", "gracePeriod",
				*again.Kill.GracePeriod, "evict", again.Kill.Evict)
			w.deliver(logger, p, again) //nolint:contextcheck // see below
			if update.UpdateType != kubetypes.SyncPodKill {
				// What it brings the request has brought already.
				return updateResult{answer: podkill.Unchanged}
			}
		}
	}
	//nolint:contextcheck // what a worker does runs in the worker's context, not in that of whoever brings an update
	return w.deliver(logger, p, update)
}

// neverHere is true when the source of a static pod has dropped it, and nothing of it was or is here: it was rejected.
// It gets no worker. One would stand for a life that has to end before the pod may come again, and then be started
// without admission.
func (w *Workers) neverHere(update Update) bool {
	dropped := update.UpdateType == kubetypes.SyncPodKill && update.Pod != nil && update.Kill == nil
	return dropped && kubetypes.IsStaticPod(update.Pod) && w.runtimeStopped(update.Pod.UID)
}

// deliver passes an update on to the pod's worker.
func (w *Workers) deliver(logger klog.Logger, p *worker, update Update) updateResult {
	kill, waiter := w.killTerms(update.Kill)
	before, _ := w.cfg.Store.State(p.uid)
	earlier := p.grace.seconds
	state := w.apply(p, w.event(p, &update, kill), eventContext{update: &update})
	w.saveTermination(p, &update, state, earlier)
	logger.V(4).Info("Pod worker was told of an update", "phase", state.Phase, "cause", state.Termination.Cause, "pending",
		state.Pending)
	return updateResult{answer: answerOf(before, state, update.Pod), waiter: waiter}
}

// event translates an update. A running pod is replaced by the specification that the worker has, if it has one.
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

// killTerms translates the terms of a kill and registers who waits for it.
func (w *Workers) killTerms(kill *KillOptions) (*podlifecycle.Kill, podlifecycle.WaiterID) {
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
