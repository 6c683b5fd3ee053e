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

// preemptor is what is kept of a critical pod until Forget.
type preemptor struct {
	// attempt is planned or under way, nil if there is none.
	attempt *attempt
	// failed are the victims of earlier attempts that did not stop, with the reason of each. None of them is chosen again.
	failed map[types.UID]error
}

// attempt carries out one plan. When it is over the pod is judged again, beside the pods that there are then.
type attempt struct {
	pod        *v1.Pod
	candidates map[types.UID]candidate
	victims    plan.Victims
	// cancel ends the attempt; nil until it has begun.
	cancel context.CancelFunc
}

func (a *attempt) begun() bool { return a != nil && a.cancel != nil }

// has is true for a pod that is being stopped, or waited for, in this attempt.
func (a *attempt) has(uid types.UID) bool {
	return a.begun() && (slices.Contains(a.victims.Await, uid) || slices.Contains(a.victims.Stop, uid))
}

// plan plans an attempt to make room for the pod, which lacks need beside the other pods; an attempt that has begun
// stays. The error says why there can be no room.
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
	victims, ok := plan.Choose(need, values(candidates))
	if !ok {
		none := fmt.Errorf("preemption: no set of running pods frees %s", need)
		return errors.Join(append([]error{none}, p.failures()...)...)
	}
	p.attempt = &attempt{pod: pod, candidates: candidates, victims: victims}
	h.preemptors[pod.UID] = p
	return nil
}

// failures are the reasons why victims did not stop, by the victims' UIDs.
func (p *preemptor) failures() []error {
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(p.failed)) {
		errs = append(errs, p.failed[uid])
	}
	return errs
}

// Begin carries out what is planned for the pod, if anything is. It requests the stop of the victims and does not wait
// for it. The attempt ends with Forget and with Run.
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
	requests := h.request(ctx, a)
	h.work.Go(func() {
		defer a.cancel()
		defer unlink()
		failed, err := h.await(ctx, requests)
		if errors.Is(err, errAborted) {
			// The pod was forgotten, or goes on waiting for the next run of the agent.
			return
		}
		h.conclude(ctx, a, failed)
	})
}

// request requests the stop of all victims, and the notice of the end of those that are terminating anyway. The
// requests are made before another pod is judged, so that it counts the victims as pods that are going.
func (h *Handler) request(ctx context.Context, a *attempt) []request {
	requests := make([]request, 0, len(a.victims.Await)+len(a.victims.Stop))
	for _, uid := range a.victims.Await {
		requests = append(requests, h.join(ctx, a.candidates[uid]))
	}
	for _, uid := range a.victims.Stop {
		requests = append(requests, h.preempt(ctx, a.pod, a.candidates[uid]))
	}
	return requests
}

// conclude ends the attempt and notes which of its victims have failed, unless the pod was forgotten meanwhile.
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
	h.Over()
}

// errAborted ends an attempt without a result, since the agent stops or the pod was forgotten: it says nothing about a
// victim, nor about the pod that needs the room.
var errAborted = errors.New("the attempt to make room was aborted")

// await waits for all victims side by side, and returns those that outlive everything that is tried. The error is
// errAborted.
func (h *Handler) await(ctx context.Context, requests []request) (failed map[types.UID]error, err error) {
	var (
		mu sync.Mutex
		wg sync.WaitGroup
	)
	failed = map[types.UID]error{}
	for _, r := range requests {
		wg.Go(func() {
			failure := h.end(ctx, r)
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
