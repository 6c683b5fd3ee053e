package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	v1qos "k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

const (
	// ReasonWaiting is the reason of the event and of the status of a pod that waits.
	ReasonWaiting = podstatus.ReasonWaitingForRoom
	// maxWaiting is how many pods may wait at a time. A node has few DaemonSets; further pods are rejected at once.
	maxWaiting = 64
)

var podsWaiting = metrics.NewGauge(&metrics.GaugeOpts{
	Name:           "plimsoll_pods_waiting",
	Help:           "Pods that wait for admission: for the end of pressure, or for preemption victims to stop.",
	StabilityLevel: metrics.ALPHA,
})

var registerWaiting = sync.OnceFunc(func() { legacyregistry.MustRegister(podsWaiting) })

// Pressure checks a new pod against the node's pressure conditions. The message names the conditions.
type Pressure interface {
	AdmitOrWait(pod *v1.Pod) (policy.Verdict, string)
}

// WaitingPodsConfig is the configuration of WaitingPods. All fields are required.
type WaitingPodsConfig struct {
	Pressure Pressure
	Status   StatusSetter
	Recorder record.EventRecorder
	Clock    clock.PassiveClock
	// Victims stops pods of lower priority for critical pods.
	Victims Victims
	// Active lists the pods that use the node or may use it, waiting pods included.
	Active func() []*v1.Pod
	// ShuttingDown is true while the machine shuts down.
	ShuttingDown func() bool
	// MaxWait is how long a pod may wait for the end of pressure; with zero no pod waits. It is called for each check, so
	// that a reload of the configuration takes effect.
	MaxWait func() time.Duration
}

// Victims carries out preemption.
type Victims interface {
	// InProgress is true while an attempt to preempt for the pod is planned or in progress.
	InProgress(uid types.UID) bool
	// Begin starts to stop the victims that are planned for the pod. It does not block; ctx ends the attempt.
	Begin(ctx context.Context, uid types.UID)
	// Forget ends the attempt for a pod that does not wait any more, and deletes its record.
	Forget(uid types.UID)
}

// WaitingPods owns the pods that wait for admission. Two kinds of pods wait: those whose controller would create them
// again for this node if they were rejected, until pressure ends (kubernetes issues 65240 and 124388: hundreds of
// rejected pods of a DaemonSet accumulate); and critical pods, until their preemption victims have stopped.
//
// A waiting pod is Pending in the API with the cause in its status. It has no pod worker, and uses no resources. Its
// resource requests count for pods that come later. The sync loop checks it each second, and at once after
// RequestRetry; no goroutine waits for it. After a restart of the agent it arrives as a new pod and continues to wait
// from the start time in its status.
//
// ShouldWait, WaitForVictims, Release and UIDs may be called by the sync loop only; the other methods are safe for
// concurrent use.
type WaitingPods struct {
	WaitingPodsConfig
	mu sync.Mutex
	// pods in the order of their arrival.
	pods []waitingPod
	// retry holds one token, so that a burst of requests becomes one.
	retry chan struct{}
}

type waitingPod struct {
	uid   types.UID
	since time.Time
	// forVictims is true for a pod that waits until others have stopped.
	forVictims bool
	// competing are the pods that counted when the pod was refused last, if it waits for victims.
	competing []*v1.Pod
	// inAdmission is true while the admit handlers run for the pod. The pod keeps its place until they have returned, but
	// IsWaiting is false for it, because it may be running a moment later.
	inAdmission bool
}

// NewWaitingPods returns an empty WaitingPods.
func NewWaitingPods(c WaitingPodsConfig) *WaitingPods {
	registerWaiting()
	return &WaitingPods{WaitingPodsConfig: c, retry: make(chan struct{}, 1)}
}

// RequestRetry requests a check of the waiting pods at once, because the cause of their wait may be gone. It does not
// block.
func (w *WaitingPods) RequestRetry() {
	select {
	case w.retry <- struct{}{}:
	default:
	}
}

// RetryRequested delivers once after one or more calls of RequestRetry.
func (w *WaitingPods) RetryRequested() <-chan struct{} { return w.retry }

// ShouldWait reports whether the pod has to wait, for new pods and for those that wait already. False means that the
// admit handlers have to run: pressure does not prevent the admission any more, or the pod has waited for MaxWait.
// The caller has to call Release or WaitForVictims after the handlers have returned.
func (w *WaitingPods) ShouldWait(ctx context.Context, pod *v1.Pod) bool {
	p, known := w.find(pod.UID)
	if known && w.ShuttingDown() {
		// The admit handlers would reject the pod, and a DaemonSet would create another for this node. After a shutdown that
		// is cancelled the pod is checked as before.
		return true
	}
	verdict, cause := w.Pressure.AdmitOrWait(pod)
	now, maxWait := w.Clock.Now(), w.MaxWait()
	if !known {
		p = waitingPod{uid: pod.UID, since: waitingSince(pod, now)}
	}
	waits := verdict == policy.Waits && now.Sub(p.since) < maxWait
	if p.forVictims {
		// The admit handlers run again when its victims have stopped, and when any competing pod has: that may suffice.
		waits = w.Victims.InProgress(pod.UID) && !w.anyEnded(p.competing)
	}
	switch {
	case waits:
		message := fmt.Sprintf("%sThe pod waits for at most %v and is rejected then.", cause, maxWait)
		return known || w.enqueue(ctx, p, pod, message)
	case known:
		w.startAdmission(pod.UID)
	}
	return false
}

// anyEnded is true when one of the pods does not use the node any more.
func (w *WaitingPods) anyEnded(pods []*v1.Pod) bool {
	active := sets.New[types.UID]()
	for _, p := range w.Active() {
		active.Insert(p.UID)
	}
	return slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !active.Has(p.UID) })
}

// WaitForVictims reports whether the pod, which the admit handlers have just refused with the given competing pods and
// for the given cause, has to wait for preemption victims. Victims are stopped only after the pod was added here,
// and not while the machine shuts down.
func (w *WaitingPods) WaitForVictims(ctx context.Context, pod *v1.Pod, competing []*v1.Pod, cause string) bool {
	if w.ShuttingDown() || !w.Victims.InProgress(pod.UID) {
		return false
	}
	p := waitingPod{uid: pod.UID, since: w.Clock.Now(), forVictims: true, competing: competing}
	if !w.enqueue(ctx, p, pod, cause+". Pods of lower priority are being stopped to free resources.") {
		return false
	}
	w.Victims.Begin(ctx, pod.UID)
	return true
}

// waitingSince returns the start time of a pod whose status says that it waited before the agent was restarted, else
// now.
func waitingSince(pod *v1.Pod, now time.Time) time.Time {
	if s := &pod.Status; s.Reason == ReasonWaiting && s.StartTime != nil && s.StartTime.Time.Before(now) {
		return s.StartTime.Time
	}
	return now
}

// report writes the log line, the event and the status of a pod that begins to wait.
func (w *WaitingPods) report(ctx context.Context, pod *v1.Pod, message string) {
	klog.FromContext(ctx).Info("Pod waits for admission", "pod", klog.KObj(pod), "podUID", pod.UID, "message", message)
	if pod.Status.Reason != ReasonWaiting {
		w.Recorder.Event(pod, v1.EventTypeNormal, ReasonWaiting, message)
	}
	status := *pod.Status.DeepCopy()
	status.Phase, status.Reason, status.Message = v1.PodPending, ReasonWaiting, message
	status.QOSClass = v1qos.GetPodQOS(pod)
	w.Status.SetPodStatus(klog.FromContext(ctx), pod, status)
}

func (w *WaitingPods) find(uid types.UID) (waitingPod, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.index(uid); i >= 0 {
		return w.pods[i], true
	}
	return waitingPod{}, false
}

// index returns the index of a pod, -1 if it does not wait. mu must be held.
func (w *WaitingPods) index(uid types.UID) int {
	return slices.IndexFunc(w.pods, func(p waitingPod) bool { return p.uid == uid })
}

// enqueue returns false when maxWaiting pods wait already.
func (w *WaitingPods) enqueue(ctx context.Context, p waitingPod, pod *v1.Pod, message string) bool {
	before, _ := w.find(pod.UID)
	if !w.set(p) {
		klog.FromContext(ctx).Info("Too many pods wait for admission", "pod", klog.KObj(pod), "limit", maxWaiting)
		return false
	}
	if !before.forVictims {
		w.report(ctx, pod, message)
	}
	return true
}

// set appends the pod, or replaces its entry. It returns false if maxWaiting pods wait already.
func (w *WaitingPods) set(p waitingPod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := w.index(p.uid); i >= 0 {
		w.pods[i] = p
		return true
	}
	if len(w.pods) >= maxWaiting {
		return false
	}
	w.pods = append(w.pods, p)
	podsWaiting.Set(float64(len(w.pods)))
	return true
}

// startAdmission marks a waiting pod as one for which the admit handlers run.
func (w *WaitingPods) startAdmission(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[w.index(uid)].inAdmission = true
}

// Release removes a pod that was admitted, rejected or deleted, and ends its preemption attempt.
func (w *WaitingPods) Release(uid types.UID) {
	w.Victims.Forget(uid)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods = slices.DeleteFunc(w.pods, func(p waitingPod) bool { return p.uid == uid })
	podsWaiting.Set(float64(len(w.pods)))
}

// IsWaitingForVictims reports whether the pod waits for preemption victims.
func (w *WaitingPods) IsWaitingForVictims(uid types.UID) bool {
	p, waits := w.find(uid)
	return waits && p.forVictims
}

// IsWaiting reports whether the pod waits. It is false while the admit handlers run for the pod.
func (w *WaitingPods) IsWaiting(uid types.UID) bool {
	p, waits := w.find(uid)
	return waits && !p.inAdmission
}

// UIDs lists the waiting pods in the order of their arrival.
func (w *WaitingPods) UIDs() []types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	uids := make([]types.UID, 0, len(w.pods))
	for _, p := range w.pods {
		uids = append(uids, p.uid)
	}
	return uids
}

// Exclude returns the pods without those that wait. Eviction and preemption choose from these, because stopping a
// waiting pod frees nothing.
func (w *WaitingPods) Exclude(pods []*v1.Pod) []*v1.Pod {
	if len(w.UIDs()) == 0 {
		return pods
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return w.IsWaiting(p.UID) })
}

// Competing lists the active pods whose requests count against the given one. Waiting pods that arrived after it do not
// count, nor those that it may preempt. Waiting preemptors count even if they arrived later, unless the given pod is a
// waiting preemptor itself.
func (w *WaitingPods) Competing(pod *v1.Pod) []*v1.Pod {
	active := w.Active()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.pods) == 0 {
		return active
	}
	own := w.index(pod.UID)
	preemptor := own >= 0 && w.pods[own].forVictims
	return slices.DeleteFunc(slices.Clone(active), func(p *v1.Pod) bool {
		i := w.index(p.UID)
		if i < 0 || i == own {
			return false
		}
		later := own >= 0 && i > own
		return later && (preemptor || !w.pods[i].forVictims) || kubetypes.Preemptable(pod, p)
	})
}
