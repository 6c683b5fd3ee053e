package preemption

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption/plan"
)

// preemptor is the record of a critical pod. Forget deletes it.
type preemptor struct {
	// attempt is planned or in progress, nil if there is none.
	attempt *attempt
	// failed are the victims of earlier attempts that did not stop, with their errors. They are not chosen again.
	failed map[types.UID]error
}

// attempt executes one plan. After its end the pod goes through admission again, with a new list of other pods.
type attempt struct {
	pod        *v1.Pod
	candidates map[types.UID]candidate
	victims    plan.Victims
	// cancel ends the attempt. It is nil until the attempt has begun.
	cancel context.CancelFunc
}

func (a *attempt) begun() bool { return a != nil && a.cancel != nil }

// isVictim is true for a pod that this attempt stops or awaits.
func (a *attempt) isVictim(uid types.UID) bool {
	return a.begun() && (slices.Contains(a.victims.Await, uid) || slices.Contains(a.victims.Stop, uid))
}

// plan plans an attempt for the pod. need is what the pod lacks beside the requests of the other pods. If an attempt
// has begun, plan does nothing. It returns an error if no set of victims suffices, with the victims that did not stop.
func (h *Handler) plan(pod *v1.Pod, need plan.Need, others []*v1.Pod) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.preemptors[pod.UID]
	if p == nil {
		p = &preemptor{failed: map[types.UID]error{}}
	}
	if p.attempt.begun() {
		return nil
	}
	p.attempt = nil
	candidates := h.candidates(pod, need, others)
	maps.DeleteFunc(candidates, func(uid types.UID, _ candidate) bool { return p.failed[uid] != nil })
	victims, ok := plan.Choose(need, sortedCandidates(candidates))
	if !ok {
		none := fmt.Errorf("preemption: no set of running pods frees %s", need)
		err := errors.Join(append([]error{none}, p.failures()...)...)
		h.planned(pod, nil, plan.Victims{}, err)
		return err
	}
	h.planned(pod, candidates, victims, nil)
	p.attempt = &attempt{pod: pod, candidates: candidates, victims: victims}
	h.preemptors[pod.UID] = p
	return nil
}

// planned reports a plan, whose victims are among the candidates, or why there is none.
func (h *Handler) planned(pod *v1.Pod, candidates map[types.UID]candidate, victims plan.Victims, err error) {
	if h.Planned == nil {
		return
	}
	podsOf := func(uids []types.UID) (pods []*v1.Pod) {
		for _, uid := range uids {
			pods = append(pods, candidates[uid].pod)
		}
		return pods
	}
	h.Planned(pod, podsOf(victims.Stop), podsOf(victims.Await), err)
}

// failures are the errors of victims that did not stop, ordered by UID.
func (p *preemptor) failures() []error {
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(p.failed)) {
		errs = append(errs, p.failed[uid])
	}
	return errs
}

// Begin begins the planned attempt for the pod, if there is one. It requests the stop of the victims and does not wait
// until they have stopped. Forget and the end of Run end the attempt.
func (h *Handler) Begin(ctx context.Context, uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.preemptors[uid]
	if h.running.Err() != nil || p == nil || p.attempt == nil || p.attempt.begun() {
		return
	}
	a := p.attempt
	ctx, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(h.running, a.cancel) //nolint:contextcheck // the attempt ends with the handler too
	requests := h.requestStops(ctx, a)
	h.work.Go(func() {
		defer a.cancel()
		defer unlink()
		failed, err := h.awaitAll(ctx, requests)
		if errors.Is(err, errAborted) {
			// Forget was called for the pod, or the agent stops: then the pod goes through admission in the next process.
			return
		}
		h.conclude(ctx, a, failed)
	})
}

// requestStops requests the stop of the victims, and the endings of those that are terminating already. It returns
// before the next admission, which therefore counts all victims as terminating.
func (h *Handler) requestStops(ctx context.Context, a *attempt) []request {
	requests := make([]request, 0, len(a.victims.Await)+len(a.victims.Stop))
	for _, uid := range a.victims.Await {
		requests = append(requests, h.awaitTerminating(ctx, a.candidates[uid]))
	}
	for _, uid := range a.victims.Stop {
		requests = append(requests, h.preempt(ctx, a.pod, a.candidates[uid]))
	}
	return requests
}

// conclude ends the attempt and records the victims that did not stop, unless Forget was called meanwhile.
func (h *Handler) conclude(ctx context.Context, a *attempt, failed map[types.UID]error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.preemptors[a.pod.UID]
	if p == nil || p.attempt != a {
		return
	}
	p.attempt = nil
	maps.Copy(p.failed, failed)
	if len(failed) > 0 {
		err := errors.Join(p.failures()...)
		klog.FromContext(ctx).Error(err, "Preemption victims did not stop", "pod", klog.KObj(a.pod), "podUID", a.pod.UID)
	}
	h.OnAttemptEnd()
}

// errAborted is the error of an attempt that ended without a result, because the agent stops or Forget was called. Then
// no victim has failed to stop, and nothing is decided about the preemptor.
var errAborted = errors.New("preemption attempt aborted")

// awaitAll waits for all victims in parallel, and returns those that are still terminating after the last escalation
// step. The error is errAborted.
func (h *Handler) awaitAll(ctx context.Context, requests []request) (failed map[types.UID]error, err error) {
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	failed = map[types.UID]error{}
	for _, r := range requests {
		wg.Go(func() {
			failure := h.awaitVictim(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case errors.Is(failure, errAborted):
				err = failure
			case failure != nil:
				failed[r.victim.UID] = fmt.Errorf("pod %s: %w", klog.KObj(r.victim.pod), failure)
			}
		})
	}
	wg.Wait()
	return failed, err
}
