package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption/plan"
)

// effort is under way until it is done; err says why there is no room then.
type effort struct {
	done bool
	err  error
	// leaving are the pods that are being stopped at this moment, or waited for.
	leaving uidSet
}

// begin starts to make room, unless that is under way already. The error of an effort that has ended in vain is returned once.
func (h *Handler) begin(ctx context.Context, pod *v1.Pod, need plan.Need) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.efforts[pod.UID]; ok && !e.done {
		return nil
	} else if ok && e.err != nil {
		delete(h.efforts, pod.UID)
		return e.err
	}
	candidates := h.candidates(pod, need)
	victims, ok := plan.Choose(need, values(candidates))
	if !ok {
		return noVictims(need)
	}
	e := &effort{leaving: uidsOf(victims)}
	h.efforts[pod.UID] = e
	go func() {
		err := h.makeRoom(ctx, e, pod, need, candidates)
		h.mu.Lock()
		defer h.mu.Unlock()
		e.done, e.err = true, err
	}()
	return nil
}

func noVictims(need plan.Need) error {
	return fmt.Errorf("preemption: no set of running pods frees %s", need)
}

// makeRoom stops victims until the need is covered. A victim that does not stop is left out of the next plan
// (stock admits the pod all the same and overcommits the node).
func (h *Handler) makeRoom(ctx context.Context, e *effort, pod *v1.Pod, need plan.Need, candidates map[types.UID]candidate) error {
	var failed []error
	for {
		victims, ok := plan.Choose(need, values(candidates))
		if !ok {
			return errors.Join(append([]error{noVictims(need)}, failed...)...)
		}
		h.setLeaving(e, victims)
		gone, errs := h.stop(ctx, pod, victims, candidates)
		failed = append(failed, errs...)
		for uid := range candidates {
			if gone.Has(uid) {
				need = need.Without(candidates[uid].Requests)
			}
		}
		for _, uid := range slices.Concat(victims.Await, victims.Stop) {
			delete(candidates, uid)
		}
		if len(errs) == 0 {
			return nil
		}
		klog.FromContext(ctx).Error(errors.Join(errs...), "Preemption victims did not stop, looking for others", "pod", klog.KObj(pod), "missing", need)
	}
}

func (h *Handler) setLeaving(e *effort, victims plan.Victims) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.leaving = uidsOf(victims)
}

func uidsOf(victims plan.Victims) uidSet {
	set := uidSet{}
	for _, uid := range slices.Concat(victims.Await, victims.Stop) {
		set[uid] = struct{}{}
	}
	return set
}

// stop stops the victims side by side, waits for those that are going anyway, and returns who is gone.
func (h *Handler) stop(ctx context.Context, preemptor *v1.Pod, victims plan.Victims, candidates map[types.UID]candidate) (uidSet, []error) {
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		gone = uidSet{}
		errs []error
	)
	end := func(uid types.UID, do func(*v1.Pod) error) {
		wg.Go(func() {
			err := do(candidates[uid].pod)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("pod %s: %w", klog.KObj(candidates[uid].pod), err))
				return
			}
			gone[uid] = struct{}{}
		})
	}
	for _, uid := range victims.Await {
		end(uid, func(pod *v1.Pod) error { return h.kill(ctx, pod, false, nil, nil) })
	}
	for _, uid := range victims.Stop {
		end(uid, func(pod *v1.Pod) error { return h.preempt(ctx, preemptor, pod, candidates[uid].Requests) })
	}
	wg.Wait()
	return gone, errs
}

// uidSet is a set of pods.
type uidSet map[types.UID]struct{}

// Has is true when the pod is in the set.
func (s uidSet) Has(uid types.UID) bool { _, ok := s[uid]; return ok }
