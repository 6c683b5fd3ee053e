package syncloop

import (
	"context"
	"slices"
	"sort"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/sliceutils"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// Workers take a pod through its life.
type Workers interface {
	UpdatePod(ctx context.Context, update podworkers.Update)
	// Retry repeats what failed, of a pod that has to be stopped and that no source names.
	Retry(uid types.UID)
}

// Lifecycle says whether a pod is being stopped already.
type Lifecycle interface {
	IsPodTerminationRequested(uid types.UID) bool
}

// Gate admits a new pod beside the active ones, or rejects it and says so to the API server.
type Gate interface {
	Admit(ctx context.Context, pod *v1.Pod) bool
}

// WaitingPods are the pods that wait for admission. Such a pod has no worker and gets none.
type WaitingPods interface {
	IsWaiting(uid types.UID) bool
	// Release removes a pod for which admission need not be tried again.
	Release(uid types.UID)
	// UIDs lists them in the order of their arrival.
	UIDs() []types.UID
}

// Observer is told which pods this node has; it must not block.
type Observer interface {
	TrackPod(ctx context.Context, pod *v1.Pod)
	ForgetPod(ctx context.Context, pod *v1.Pod)
}

// Statuses are the statuses that the agent has reported.
type Statuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	// RemoveOrphanedStatuses forgets those of all pods for which keep is not true.
	RemoveOrphanedStatuses(logger klog.Logger, keep map[types.UID]bool)
}

// HandlersConfig is what Handlers works with.
type HandlersConfig struct {
	Pods         kubepod.Manager
	Workers      Workers
	Lifecycle    Lifecycle
	Gate         Gate
	Waiting      WaitingPods
	Resizes      *Resizes
	Certificates Observer
	SourcesReady config.SourcesReady
	Statuses     Statuses
	// Updated, if not nil, is told the old and the new version of every pod that a source has changed.
	Updated func(ctx context.Context, old, pod *v1.Pod)
	// RemoveDeadContainers removes what is left of an evicted pod's containers, in the background.
	RemoveDeadContainers func(ctx context.Context, uid types.UID)
}

// Handlers turns changes into updates of the pod workers. Add, Update, Remove, Reconcile and Retry are called by the
// loop only; the Sync methods by anyone.
type Handlers struct {
	HandlersConfig
}

// NewHandlers returns handlers over the given parts.
func NewHandlers(cfg HandlersConfig) *Handlers { return &Handlers{HandlersConfig: cfg} }

// Add takes pods in that a source names for the first time: after a restart of the agent all of them are. Oldest first,
// so that when not all fit the oldest stay.
func (h *Handlers) Add(ctx context.Context, pods []*v1.Pod) {
	start := time.Now()
	sort.Sort(sliceutils.PodsByCreationTime(pods))
	for _, pod := range pods {
		h.Pods.AddPod(pod)
		h.Certificates.TrackPod(ctx, pod)
		if pod, mirror, ok := h.resolve(ctx, pod); ok {
			h.add(ctx, start, pod, mirror)
		}
	}
	h.Resizes.PodsAdded(pods)
}

// add admits one pod. A mirror pod only tells the worker of its static pod that it is there now.
func (h *Handlers) add(ctx context.Context, start time.Time, pod, mirror resolved) {
	if mirror.changed {
		h.update(ctx, start, kubetypes.SyncPodUpdate, pod.Pod, mirror.Pod)
		return
	}
	// A pod that is terminating keeps its resources until its worker lets go of them; one that has ended needs none, nor
	// does one that was deleted while no agent was there.
	ends := pod.DeletionTimestamp != nil || podutil.IsPodPhaseTerminal(pod.Status.Phase)
	if !ends && !h.Lifecycle.IsPodTerminationRequested(pod.UID) {
		if !h.Gate.Admit(ctx, pod.Pod) {
			return
		}
		h.Resizes.PodAdmitted(pod.Pod)
	} else {
		// It may have ended while it waited: somebody else has set its status.
		h.Waiting.Release(pod.UID)
	}
	h.update(ctx, start, kubetypes.SyncPodCreate, pod.Pod, mirror.Pod)
}

// AskAgain asks admission again for the pods that wait, those that came first before others.
func (h *Handlers) AskAgain(ctx context.Context) {
	for _, uid := range h.Waiting.UIDs() {
		pod, ok := h.Pods.GetPodByUID(uid)
		if !ok || h.Lifecycle.IsPodTerminationRequested(uid) {
			h.Waiting.Release(uid)
			continue
		}
		if pod, mirror, ok := h.resolve(ctx, pod); ok {
			h.add(ctx, time.Now(), pod, mirror)
		}
	}
}

// Update passes on what a source has changed in pods that are known.
func (h *Handlers) Update(ctx context.Context, pods []*v1.Pod) {
	start := time.Now()
	for _, pod := range pods {
		old, _ := h.Pods.GetPodByUID(pod.UID)
		h.Pods.UpdatePod(pod)
		pod, mirror, ok := h.resolve(ctx, pod)
		if !ok {
			continue
		}
		h.Resizes.PodUpdated(old, pod.Pod)
		if h.Updated != nil {
			h.Updated(ctx, old, pod.Pod)
		}
		if pod.DeletionTimestamp != nil {
			h.Waiting.Release(pod.UID)
		}
		h.update(ctx, start, kubetypes.SyncPodUpdate, pod.Pod, mirror.Pod)
	}
}

// Remove stops pods that their source no longer has.
func (h *Handlers) Remove(ctx context.Context, pods []*v1.Pod) {
	start := time.Now()
	staticEnded := false
	for _, pod := range pods {
		staticEnded = staticEnded || kubetypes.IsStaticPod(pod) && h.ended(pod.UID)
		h.Certificates.ForgetPod(ctx, pod)
		waited := h.Waiting.IsWaiting(pod.UID)
		h.Waiting.Release(pod.UID)
		h.Pods.RemovePod(pod)
		h.Resizes.Allocations.RemovePod(pod.UID)
		pod, mirror, ok := h.resolve(ctx, pod)
		switch {
		case !ok:
		case mirror.changed:
			// The mirror pod is gone: its static pod's worker makes a new one.
			h.update(ctx, start, kubetypes.SyncPodUpdate, pod.Pod, nil)
		case waited && kubetypes.IsStaticPod(pod.Pod):
			// It was not admitted, and nothing of it is here. When its file comes back it is judged as a new pod; a worker
			// would have it started again without admission.
		case !h.SourcesReady.AllReady() && !kubetypes.IsStaticPod(pod.Pod):
			// Another source may still name it. Housekeeping stops it when none does. A static pod's UID is that of one source,
			// which has just spoken; and its successor, which waits for its end, may be the API server that is another source.
			klog.FromContext(ctx).V(2).Info("Not stopping the removed pod, some sources have not reported yet", "pod",
				klog.KObj(pod.Pod))
		default:
			klog.FromContext(ctx).V(3).Info("Pod has been deleted and must be killed", "pod", klog.KObj(pod.Pod), "podUID",
				pod.UID)
			h.Workers.UpdatePod(ctx, podworkers.Update{UpdateType: kubetypes.SyncPodKill, Pod: pod.Pod})
		}
	}
	if staticEnded {
		h.forgetStatuses(ctx)
	}
	h.Resizes.PodsRemoved()
}

// ended is true when the agent has reported the end of the pod, or has rejected it.
func (h *Handlers) ended(uid types.UID) bool {
	status, known := h.Statuses.GetPodStatus(uid)
	return known && podutil.IsPodPhaseTerminal(status.Phase)
}

// forgetStatuses forgets the statuses of pods that no source names any more. It does not wait for housekeeping: when
// the manifest of a static pod comes back before the next round, the end of the last life must not be that of the next
// one.
func (h *Handlers) forgetStatuses(ctx context.Context) {
	keep := map[types.UID]bool{}
	all, mirrors, _ := h.Pods.GetPodsAndMirrorPods()
	for _, pod := range slices.Concat(all, mirrors) {
		keep[pod.UID] = true
	}
	h.Statuses.RemoveOrphanedStatuses(klog.FromContext(ctx), keep)
}

// Reconcile takes in pods of which only the status has changed at the source.
func (h *Handlers) Reconcile(ctx context.Context, pods []*v1.Pod) {
	start := time.Now()
	pending := h.Resizes.Pending()
	for _, pod := range pods {
		old, _ := h.Pods.GetPodByUID(pod.UID)
		h.Pods.UpdatePod(pod)
		pod, mirror, ok := h.resolve(ctx, pod)
		if !ok {
			continue
		}
		pending.PodReconciled(old, pod.Pod)
		if status.NeedToReconcilePodReadiness(pod.Pod) {
			h.update(ctx, start, kubetypes.SyncPodSync, pod.Pod, mirror.Pod)
		}
		// Once the API server knows how they ended, nothing of the containers is needed any more.
		if eviction.EvictedAndStopped(&pod.Status) {
			h.RemoveDeadContainers(ctx, pod.UID)
		}
	}
	pending.Retry()
}

// Sync has the workers synchronize the given pods, which must not be mirror pods.
func (h *Handlers) Sync(ctx context.Context, pods ...*v1.Pod) {
	start := time.Now()
	for _, pod := range pods {
		if pod, mirror, ok := h.resolve(ctx, pod); ok && !mirror.changed {
			h.update(ctx, start, kubetypes.SyncPodSync, pod.Pod, mirror.Pod)
		}
	}
}

// SyncByUID is Sync of one pod, and false when no source knows it (any more).
func (h *Handlers) SyncByUID(ctx context.Context, uid types.UID) bool {
	pod, ok := h.Pods.GetPodByUID(uid)
	if ok {
		h.Sync(ctx, pod)
	}
	return ok
}

// SyncIf is Sync of the configured pods for which due is true.
func (h *Handlers) SyncIf(ctx context.Context, due func(*v1.Pod) bool) {
	pods := slices.DeleteFunc(h.Pods.GetPods(), func(pod *v1.Pod) bool { return !due(pod) })
	if len(pods) == 0 {
		return
	}
	klog.FromContext(ctx).V(4).Info("SyncLoop (SYNC) pods", "total", len(pods), "pods", klog.KObjSlice(pods))
	h.Sync(ctx, pods...)
}

// Retry passes those of the given pods that no source names (any more) to the workers, since there is no specification
// to send. Such a pod may have running containers, or something else to release; only the workers can say.
func (h *Handlers) Retry(uids []types.UID) {
	for _, uid := range uids {
		if _, named := h.Pods.GetPodByUID(uid); !named {
			h.Workers.Retry(uid)
		}
	}
}

// Restart has pods started again that were stopped, if their source still has them: when the worker has stopped and
// forgotten the pod, housekeeping starts it. Admission is not asked again.
func (h *Handlers) Restart(ctx context.Context, stopped []*v1.Pod) {
	for _, pod := range stopped {
		if pod, ok := h.Pods.GetPodByUID(pod.UID); ok {
			_, mirror, _ := h.Pods.GetPodAndMirrorPod(pod)
			h.Workers.UpdatePod(ctx, podworkers.Update{UpdateType: kubetypes.SyncPodCreate, Pod: pod, MirrorPod: mirror})
		}
	}
}

// resolved is a pod, or the mirror pod of a pod; changed is true for the one of the two that the caller came with.
type resolved struct {
	*v1.Pod
	changed bool
}

// resolve finds the pod and its mirror pod, given either. It is false for a mirror pod whose static pod is gone.
func (h *Handlers) resolve(ctx context.Context, given *v1.Pod) (pod, mirror resolved, ok bool) {
	p, m, wasMirror := h.Pods.GetPodAndMirrorPod(given)
	if p == nil {
		klog.FromContext(ctx).V(2).Info("Unable to find pod for mirror pod, skipping", "mirrorPod", klog.KObj(m),
			"mirrorPodUID", given.UID)
		return resolved{}, resolved{}, false
	}
	return resolved{Pod: p, changed: !wasMirror}, resolved{Pod: m, changed: wasMirror}, true
}

// update gives the pod to its worker, unless it waits for admission.
func (h *Handlers) update(ctx context.Context, start time.Time, kind kubetypes.SyncPodType, pod, mirror *v1.Pod) {
	if h.Waiting.IsWaiting(pod.UID) {
		return
	}
	h.Workers.UpdatePod(ctx, podworkers.Update{UpdateType: kind, Pod: pod, MirrorPod: mirror, StartTime: start})
}
