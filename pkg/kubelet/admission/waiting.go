package admission

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
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
	ReasonWaiting = podstatus.ReasonWaiting
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
	// Bound is for how long a pod may wait; zero lets none wait. It is asked each time, so that it may change.
	Bound func() time.Duration
}

// Victims says for which pods room is being made by stopping others. It ends by itself.
type Victims interface {
	Making(uid types.UID) bool
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

// Hold reports whether the pod has to wait. It is asked for new pods, and again for those that wait: false means that the pod
// has left the room and that the chain of admit handlers has the word, because pressure is no reason any more to keep it out, or
// because it has waited long enough.
func (r *Room) Hold(ctx context.Context, pod *v1.Pod) bool {
	verdict, why := r.Pressure.Judge(pod)
	now, bound := r.Clock.Now(), r.Bound()
	w, known := r.find(pod.UID)
	if !known {
		w = waiter{uid: pod.UID, since: waitsSince(pod, now)}
	}
	waits := verdict == policy.Waits && now.Sub(w.since) < bound
	if w.victims {
		waits = r.Victims.Making(pod.UID)
	}
	if !waits {
		r.leave(pod.UID)
		return false
	}
	return known || r.enter(ctx, w, pod, fmt.Sprintf("%sThe pod waits for at most %v and is rejected then.", why, bound))
}

// HoldForVictims reports whether the pod, which the chain has just refused for the given reason, has to wait until others have
// stopped to make room for it.
func (r *Room) HoldForVictims(ctx context.Context, pod *v1.Pod, why string) bool {
	if !r.Victims.Making(pod.UID) {
		r.Victims.Forget(pod.UID)
		return false
	}
	return r.enter(ctx, waiter{uid: pod.UID, since: r.Clock.Now(), victims: true}, pod, why+". Pods that matter less are being stopped to make room.")
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
	if !r.add(w) {
		klog.FromContext(ctx).Info("Too many pods wait for room already", "pod", klog.KObj(pod), "most", mostWaiting)
		return false
	}
	r.tell(ctx, pod, message)
	return true
}

func (r *Room) add(w waiter) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pods) >= mostWaiting {
		return false
	}
	r.pods = append(r.pods, w)
	podsWaiting.Set(float64(len(r.pods)))
	return true
}

// Free lets go of a pod that is deleted or gone.
func (r *Room) Free(uid types.UID) {
	r.leave(uid)
	r.Victims.Forget(uid)
}

func (r *Room) leave(uid types.UID) {
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

// Holds reports whether the pod waits.
func (r *Room) Holds(uid types.UID) bool {
	_, waits := r.find(uid)
	return waits
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

// Beside are the pods whose resources count as taken for the given one: not those that came to the room after it, nor those that
// wait and would have to make room for it. The caller's slice stays as it is.
func (r *Room) Beside(active []*v1.Pod, pod *v1.Pod) []*v1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pods) == 0 {
		return active
	}
	own := r.position(pod.UID)
	return slices.DeleteFunc(slices.Clone(active), func(p *v1.Pod) bool {
		i := r.position(p.UID)
		return i < len(r.pods) && i != own && (i > own || kubetypes.Preemptable(pod, p))
	})
}
