// Package preemption makes room for a critical pod that does not fit on the node, by stopping pods that matter less. Package
// plan chooses them; Handler turns an admission failure into a plan, has the victims stopped by the pod workers, and admits only
// when the room is there.
package preemption

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/api/v1/resource"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption/plan"
)

// What users see; equal to stock's.
const (
	message          = "Preempted in order to admit critical pod"
	conditionMessage = "Pod was preempted by Kubelet to accommodate a critical pod."
)

// Pods says which pods there are and which of them are going.
type Pods interface {
	// Allocated returns the active pods with the resources that were allocated to them.
	Allocated() []*v1.Pod
	// Readmitted is true for a pod that ran on this node before the agent was restarted.
	Readmitted(pod *v1.Pod) bool
}

// Lifecycle says which pods are being stopped already.
type Lifecycle interface {
	IsPodTerminationRequested(uid types.UID) bool
}

// KillFunc has the pod workers stop a pod and returns when its containers are gone, or with an error when they did not stop in
// time. With evict false and no grace period it only waits for a pod that is terminating anyway.
type KillFunc func(ctx context.Context, pod *v1.Pod, evict bool, gracePeriod *int64, setStatus func(*v1.PodStatus)) error

// Handler is told by the predicates which resources a pod lacks, and makes room for it when it is critical. It implements
// lifecycle.AdmissionFailureHandler. It never blocks: victims stop beside it, and the pod is asked about again when they have
// (stock stands still for as long as the slowest victim takes, with the lock of all admissions held).
type Handler struct {
	pods      Pods
	lifecycle Lifecycle
	kill      KillFunc
	recorder  record.EventRecorder

	mu sync.Mutex
	// efforts are those to make room for a pod, by its UID.
	efforts map[types.UID]*effort
}

// effort is under way until it is done; err says why there is no room then.
type effort struct {
	done bool
	err  error
	// leaving are the pods that are being stopped at this moment, or waited for.
	leaving uidSet
}

var _ lifecycle.AdmissionFailureHandler = (*Handler)(nil)

// NewHandler returns a handler that stops victims through kill.
func NewHandler(pods Pods, lc Lifecycle, kill KillFunc, recorder record.EventRecorder) *Handler {
	return &Handler{pods: pods, lifecycle: lc, kill: kill, recorder: recorder, efforts: map[types.UID]*effort{}}
}

// HandleAdmissionFailure returns the reasons that remain. For a pod that is not critical, and while room is being made for one that
// is, all remain; Making tells the two apart. An error says that there can be no room.
//
// A pod that ran here before the agent was restarted is not asked again whether it fits (kubernetes/kubernetes#83612): lack of
// resources and taints do not count for it; that the node no longer matches its affinity does, as with stock.
func (h *Handler) HandleAdmissionFailure(ctx context.Context, pod *v1.Pod, reasons []lifecycle.PredicateFailureReason) ([]lifecycle.PredicateFailureReason, error) {
	need, others := split(reasons)
	if h.pods.Readmitted(pod) {
		return slices.DeleteFunc(others, isTaint), nil
	}
	if !kubetypes.IsCriticalPod(pod) {
		return reasons, nil
	}
	if len(others) > 0 {
		return others, nil
	}
	if err := h.begin(ctx, pod, need); err != nil {
		return nil, err
	}
	return reasons, nil
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

// Making reports whether room is being made for the pod at this moment.
func (h *Handler) Making(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.efforts[uid]
	return ok && !e.done
}

// Leaving reports whether the pod is being stopped at this moment to make room for another.
func (h *Handler) Leaving(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.efforts {
		if !e.done && e.leaving.Has(uid) {
			return true
		}
	}
	return false
}

// Failed reports whether an effort to make room has ended in vain and HandleAdmissionFailure has not told so yet.
func (h *Handler) Failed(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.efforts[uid]
	return ok && e.done && e.err != nil
}

// Forget drops what is known of a pod that was admitted, rejected or deleted. Victims that are being stopped go on to stop.
func (h *Handler) Forget(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.efforts, uid)
}

// split separates what preemption can help with from what it cannot.
func split(reasons []lifecycle.PredicateFailureReason) (plan.Need, []lifecycle.PredicateFailureReason) {
	need := plan.Need{}
	var others []lifecycle.PredicateFailureReason
	for _, reason := range reasons {
		if missing, ok := reason.(*lifecycle.InsufficientResourceError); ok {
			need[missing.ResourceName] += missing.GetInsufficientAmount()
			continue
		}
		others = append(others, reason)
	}
	return need, others
}

func isTaint(reason lifecycle.PredicateFailureReason) bool {
	failure, ok := reason.(*lifecycle.PredicateFailureError)
	return ok && failure.PredicateName == tainttoleration.Name
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

// candidate keeps the pod beside what the plan needs to know.
type candidate struct {
	plan.Candidate
	pod *v1.Pod
}

// candidates lists the pods that may go for the preemptor. A static pod never comes back once it was stopped, so it may not.
func (h *Handler) candidates(preemptor *v1.Pod, need plan.Need) map[types.UID]candidate {
	out := map[types.UID]candidate{}
	for _, pod := range h.pods.Allocated() {
		releasing := h.lifecycle.IsPodTerminationRequested(pod.UID)
		if pod.UID == preemptor.UID || !releasing && (kubetypes.IsStaticPod(pod) || !kubetypes.Preemptable(preemptor, pod)) {
			continue
		}
		requests := map[v1.ResourceName]int64{}
		for name := range need {
			requests[name] = resource.GetResourceRequest(pod, name)
		}
		out[pod.UID] = candidate{pod: pod, Candidate: plan.Candidate{
			UID: pod.UID, Priority: corev1helpers.PodPriority(pod), QOS: v1qos.GetPodQOS(pod), Requests: requests, Releasing: releasing,
		}}
	}
	return out
}

func values(candidates map[types.UID]candidate) []plan.Candidate {
	out := make([]plan.Candidate, 0, len(candidates))
	for _, c := range candidates {
		out = append(out, c.Candidate)
	}
	slices.SortFunc(out, func(a, b plan.Candidate) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return out
}

// uidSet is a set of pods.
type uidSet map[types.UID]struct{}

// Has is true when the pod is in the set.
func (s uidSet) Has(uid types.UID) bool { _, ok := s[uid]; return ok }

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

// preempt stops one victim and counts it when it is gone.
func (h *Handler) preempt(ctx context.Context, preemptor, victim *v1.Pod, requests map[v1.ResourceName]int64) error {
	logger := klog.FromContext(ctx)
	h.recorder.Eventf(victim, v1.EventTypeWarning, events.PreemptContainer, message)
	logger.V(2).Info("Preempting pod to free up resources", "pod", klog.KObj(victim), "podUID", victim.UID, "requests", requests, "requestingPod", klog.KObj(preemptor))
	if err := h.kill(ctx, victim, true, nil, func(status *v1.PodStatus) { setPreempted(status, victim.Generation) }); err != nil {
		return err
	}
	metrics.Preemptions.WithLabelValues(plan.Need(requests).First().String()).Inc()
	logger.Info("Pod preempted", "pod", klog.KObj(victim), "podUID", victim.UID, "requestingPod", klog.KObj(preemptor))
	return nil
}

func setPreempted(status *v1.PodStatus, generation int64) {
	status.Phase = v1.PodFailed
	status.Reason = events.PreemptContainer
	status.Message = message
	podutil.UpdatePodCondition(status, &v1.PodCondition{
		Type:               v1.DisruptionTarget,
		Status:             v1.ConditionTrue,
		Reason:             v1.PodReasonTerminationByKubelet,
		Message:            conditionMessage,
		ObservedGeneration: podutil.CalculatePodConditionObservedGeneration(status, generation, v1.DisruptionTarget),
	})
}
