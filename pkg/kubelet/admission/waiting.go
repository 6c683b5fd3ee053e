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
	// mostWaiting bounds how many pods wait at a time. A node has few DaemonSets; what comes beyond is rejected at once.
	mostWaiting = 64
)

var podsWaiting = metrics.NewGauge(&metrics.GaugeOpts{
	Name:           "plimsoll_pods_waiting",
	Help:           "Pods that wait for room on this node: for the end of pressure, or for pods that are being preempted.",
	StabilityLevel: metrics.ALPHA,
})

var registerWaiting = sync.OnceFunc(func() { legacyregistry.MustRegister(podsWaiting) })

// Pressure answers a pod that wants to enter, and says why.
type Pressure interface {
	Judge(pod *v1.Pod) (policy.Verdict, string)
}

// RoomConfig is what a Room works with. All fields are required.
type RoomConfig struct {
	Pressure Pressure
	Status   StatusSetter
	Recorder record.EventRecorder
	Clock    clock.PassiveClock
	// Victims make room for critical pods.
	Victims Victims
	// Active lists the pods that use the node, or may, those that wait included.
	Active func() []*v1.Pod
	// GoingDown is true while the machine shuts down.
	GoingDown func() bool
	// Bound is for how long a pod may wait; zero lets none wait. It is asked each time, so that it may change.
	Bound func() time.Duration
}

// Victims are the pods that are stopped to make room for critical ones. That ends by itself.
type Victims interface {
	// Making is true while room for the pod is planned or being made.
	Making(uid types.UID) bool
	// Begin has the victims stopped that are planned for the pod, until ctx ends. It does not block.
	Begin(ctx context.Context, uid types.UID)
	// Forget drops what is known of a pod that waits no longer.
	Forget(uid types.UID)
}

// Room owns the pods that wait: for the end of pressure, when they would come straight back to this node if they were rejected
// (kubernetes issues 65240 and 124388: rejected pods of DaemonSets pile up by the hundred); and critical ones for room that is
// being made for them.
//
// A pod that waits is Pending in the API, says why in its status, has no worker, and nothing of it is on the node. The resources
// it asks for count as taken for those that come later. It is asked again by the sync loop each second, and at once when Call says
// that something has changed; no goroutine waits for it.
// After a restart of the agent it comes as a new pod and goes on waiting from where it was, by the start time in its status.
//
// Hold, HoldForVictims, Free and Waiting are for the sync loop; the others are safe for concurrent use.
type Room struct {
	RoomConfig
	mu sync.Mutex
	// pods in the order in which they came.
	pods []waiter
	// calls holds one token, so that bursts become one.
	calls chan struct{}
}

type waiter struct {
	uid   types.UID
	since time.Time
	// victims: it waits for others to stop.
	victims bool
	// beside are the pods beside which it was judged last, while it waits for others to stop.
	beside []*v1.Pod
	// judged: the chain of admit handlers has the word. The pod has its place until the chain has answered, but for
	// everybody else it counts as one that does not wait: it may be running in a moment.
	judged bool
}

// NewRoom returns an empty room.
func NewRoom(c RoomConfig) *Room {
	registerWaiting()
	return &Room{RoomConfig: c, calls: make(chan struct{}, 1)}
}

// Call asks for those that wait to be asked at once, because what keeps them out may be over. It does not block.
func (r *Room) Call() {
	select {
	case r.calls <- struct{}{}:
	default:
	}
}

// Calls delivers once after one or more calls of Call.
func (r *Room) Calls() <-chan struct{} { return r.calls }

// Hold reports whether the pod has to wait. It is asked for new pods, and again for those that wait: false means that
// the chain of admit handlers has the word, because pressure is no reason any more to keep the pod out, or because it
// has waited long enough. The caller has to call Free or HoldForVictims after the chain has answered.
func (r *Room) Hold(ctx context.Context, pod *v1.Pod) bool {
	w, known := r.find(pod.UID)
	if known && r.GoingDown() {
		// The chain would reject the pod, and the controller of a DaemonSet would make another for this node. After a
		// shutdown that is cancelled the pod is judged as ever.
		return true
	}
	verdict, why := r.Pressure.Judge(pod)
	now, bound := r.Clock.Now(), r.Bound()
	if !known {
		w = waiter{uid: pod.UID, since: waitsSince(pod, now)}
	}
	waits := verdict == policy.Waits && now.Sub(w.since) < bound
	if w.victims {
		// It is judged again when its victims have stopped, and when any pod has: its room may have come by itself.
		waits = r.Victims.Making(pod.UID) && !r.ended(w.beside)
	}
	switch {
	case waits:
		return known || r.enter(ctx, w, pod, fmt.Sprintf("%sThe pod waits for at most %v and is rejected then.", why, bound))
	case known:
		r.judge(pod.UID)
	}
	return false
}

// ended is true when one of the pods uses the node no more.
func (r *Room) ended(pods []*v1.Pod) bool {
	active := sets.New[types.UID]()
	for _, p := range r.Active() {
		active.Insert(p.UID)
	}
	return slices.ContainsFunc(pods, func(p *v1.Pod) bool { return !active.Has(p.UID) })
}

// HoldForVictims reports whether the pod, which the chain has just refused beside the given pods and for the given
// reason, has to wait until others have stopped to make room for it. They are stopped only when the pod has its place
// here, and when the machine does not go down.
func (r *Room) HoldForVictims(ctx context.Context, pod *v1.Pod, beside []*v1.Pod, why string) bool {
	if r.GoingDown() || !r.Victims.Making(pod.UID) {
		return false
	}
	w := waiter{uid: pod.UID, since: r.Clock.Now(), victims: true, beside: beside}
	if !r.enter(ctx, w, pod, why+". Pods that matter less are being stopped to make room.") {
		return false
	}
	r.Victims.Begin(ctx, pod.UID)
	return true
}

// waitsSince: a pod that was waiting when the agent was restarted says so in its status.
func waitsSince(pod *v1.Pod, now time.Time) time.Time {
	if s := &pod.Status; s.Reason == ReasonWaiting && s.StartTime != nil && s.StartTime.Time.Before(now) {
		return s.StartTime.Time
	}
	return now
}

// tell makes it visible that and why a pod waits, once.
func (r *Room) tell(ctx context.Context, pod *v1.Pod, message string) {
	klog.FromContext(ctx).Info("Pod waits for room", "pod", klog.KObj(pod), "podUID", pod.UID, "message", message)
	if pod.Status.Reason != ReasonWaiting {
		r.Recorder.Event(pod, v1.EventTypeNormal, ReasonWaiting, message)
	}
	status := *pod.Status.DeepCopy()
	status.Phase, status.Reason, status.Message = v1.PodPending, ReasonWaiting, message
	status.QOSClass = v1qos.GetPodQOS(pod)
	r.Status.SetPodStatus(klog.FromContext(ctx), pod, status)
}

func (r *Room) find(uid types.UID) (waiter, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.position(uid); i < len(r.pods) {
		return r.pods[i], true
	}
	return waiter{}, false
}

// position is the place of a pod, or one behind the last. The caller holds mu.
func (r *Room) position(uid types.UID) int {
	if i := slices.IndexFunc(r.pods, func(w waiter) bool { return w.uid == uid }); i >= 0 {
		return i
	}
	return len(r.pods)
}

// enter is false when too many wait already.
func (r *Room) enter(ctx context.Context, w waiter, pod *v1.Pod, message string) bool {
	earlier, _ := r.find(pod.UID)
	if !r.add(w) {
		klog.FromContext(ctx).Info("Too many pods wait for room already", "pod", klog.KObj(pod), "most", mostWaiting)
		return false
	}
	if !earlier.victims {
		r.tell(ctx, pod, message)
	}
	return true
}

// add gives the pod a place, or changes for what it waits at the place that it has.
func (r *Room) add(w waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.position(w.uid); i < len(r.pods) {
		r.pods[i] = w
		return true
	}
	if len(r.pods) >= mostWaiting {
		return false
	}
	r.pods = append(r.pods, w)
	podsWaiting.Set(float64(len(r.pods)))
	return true
}

// judge gives the chain the word about a pod that waits.
func (r *Room) judge(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[r.position(uid)].judged = true
}

// Free lets go of a pod that was admitted or rejected, or that is deleted or gone. What is being done to make room for
// it ends.
func (r *Room) Free(uid types.UID) {
	r.Victims.Forget(uid)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods = slices.DeleteFunc(r.pods, func(w waiter) bool { return w.uid == uid })
	podsWaiting.Set(float64(len(r.pods)))
}

// HoldsForVictims reports whether the pod waits for others to stop.
func (r *Room) HoldsForVictims(uid types.UID) bool {
	w, waits := r.find(uid)
	return waits && w.victims
}

// Holds reports whether the pod waits, and is not being judged at this moment.
func (r *Room) Holds(uid types.UID) bool {
	w, waits := r.find(uid)
	return waits && !w.judged
}

// Waiting lists the pods that wait, in the order in which they came.
func (r *Room) Waiting() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	uids := make([]types.UID, 0, len(r.pods))
	for _, w := range r.pods {
		uids = append(uids, w.uid)
	}
	return uids
}

// Without is the pods without those that wait. Eviction and preemption look at these: to stop a pod that waits frees nothing.
func (r *Room) Without(pods []*v1.Pod) []*v1.Pod {
	if len(r.Waiting()) == 0 {
		return pods
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return r.Holds(p.UID) })
}

// Beside lists the active pods whose resources count as taken for the given one: not those that came to the room after
// it, nor those that wait and would have to make room for it. Pods for which room is being made count also when they
// came later, unless the given one waits for such room itself.
func (r *Room) Beside(pod *v1.Pod) []*v1.Pod {
	active := r.Active()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pods) == 0 {
		return active
	}
	own := r.position(pod.UID)
	heir := own < len(r.pods) && r.pods[own].victims
	return slices.DeleteFunc(slices.Clone(active), func(p *v1.Pod) bool {
		i := r.position(p.UID)
		if i == len(r.pods) || i == own {
			return false
		}
		return i > own && (heir || !r.pods[i].victims) || kubetypes.Preemptable(pod, p)
	})
}
