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

// Workers are the pod workers. Their methods do not block.
type Workers interface {
	UpdatePod(ctx context.Context, update podworkers.Update)
	// Retry repeats the failed termination or clean-up of a pod; no other pod is affected.
	Retry(uid types.UID)
}

// Lifecycle reports whether the termination of a pod was requested.
type Lifecycle interface {
	IsPodTerminationRequested(uid types.UID) bool
}

// Gate admits a new pod in addition to the active ones, rejects it and reports that to the API server, or makes it
// wait. Admit returns true only if the pod is admitted.
type Gate interface {
	Admit(ctx context.Context, pod *v1.Pod) bool
}

// WaitingPods are the pods that wait for admission. Such a pod has no worker and gets none.
type WaitingPods interface {
	IsWaiting(uid types.UID) bool
	// Release removes a pod whose admission is not retried.
	Release(uid types.UID)
	// UIDs returns the waiting pods in the order of their arrival.
	UIDs() []types.UID
}

// Observer is notified of the pods of this node. Its methods must not block.
type Observer interface {
	TrackPod(ctx context.Context, pod *v1.Pod)
	ForgetPod(ctx context.Context, pod *v1.Pod)
}

// Statuses are the statuses that the agent has reported.
type Statuses interface {
	GetPodStatus(uid types.UID) (v1.PodStatus, bool)
	// RemoveOrphanedStatuses removes the statuses of all pods that are not in podUIDs.
	RemoveOrphanedStatuses(logger klog.Logger, podUIDs map[types.UID]bool)
}

// HandlersConfig are the dependencies of Handlers. All fields are required unless marked optional.
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
	// Updated is called with the old and the new version of each pod that a source has changed. Optional. It must not
	// block.
	Updated func(ctx context.Context, old, pod *v1.Pod)
	// RemoveDeadContainers removes the dead containers of an evicted pod in the background.
	RemoveDeadContainers func(ctx context.Context, uid types.UID)
}

// Handlers converts changes of pods into updates of the pod workers. Only the loop may call Add, Update, Remove,
// Reconcile, Retry, RetryTerminations and RetryWaiting; the Sync methods and Restart may be called from any goroutine.
type Handlers struct {
	HandlersConfig
}

// NewHandlers returns handlers with the given dependencies.
func NewHandlers(cfg HandlersConfig) *Handlers { return &Handlers{HandlersConfig: cfg} }

// Add admits pods that are new in a source; after a restart of the agent these are all pods. It begins with the oldest,
// so that the oldest are admitted if not all fit.
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

// add admits one pod. For a mirror pod it only sends an update to the worker of the static pod.
func (h *Handlers) add(ctx context.Context, start time.Time, pod, mirror resolved) {
	if mirror.changed {
		h.update(ctx, start, kubetypes.SyncPodUpdate, pod.Pod, mirror.Pod)
		return
	}
	// A terminating pod keeps its resources until its worker releases them. A pod that has ended, or that was deleted
	// while the agent was not running, needs none.
	ends := pod.DeletionTimestamp != nil || podutil.IsPodPhaseTerminal(pod.Status.Phase)
	if !ends && !h.Lifecycle.IsPodTerminationRequested(pod.UID) {
		if !h.Gate.Admit(ctx, pod.Pod) {
			return
		}
		h.Resizes.PodAdmitted(pod.Pod)
	} else {
		// Another client may have set a terminal phase while the pod waited.
		h.Waiting.Release(pod.UID)
	}
	h.update(ctx, start, kubetypes.SyncPodCreate, pod.Pod, mirror.Pod)
}

// RetryWaiting retries the admission of the waiting pods in the order of their arrival.
func (h *Handlers) RetryWaiting(ctx context.Context) {
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

// Update passes changed pods to their workers.
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
			// The mirror pod was deleted: the worker of the static pod creates a new one.
			h.update(ctx, start, kubetypes.SyncPodUpdate, pod.Pod, nil)
		case waited && kubetypes.IsStaticPod(pod.Pod):
			// The pod was not admitted and has no worker. If its manifest is added again, it is admitted as a new pod; with a
			// worker it would be started without admission.
		case !h.SourcesReady.AllReady() && !kubetypes.IsStaticPod(pod.Pod):
			// Another source may have the pod; if none has, housekeeping stops it. Only one source can have the UID of a static
			// pod, and that source has just removed it. A static pod must not wait, because the pod that replaces it may be the
			// API server, which is another source.
			klog.FromContext(ctx).V(2).Info("Not stopping removed pod, not all sources have reported", "pod",
				klog.KObj(pod.Pod))
		default:
			klog.FromContext(ctx).V(3).Info("Pod has been deleted and must be killed", "pod", klog.KObj(pod.Pod), "podUID",
				pod.UID)
			h.Workers.UpdatePod(ctx, podworkers.Update{UpdateType: kubetypes.SyncPodKill, Pod: pod.Pod})
		}
	}
	if staticEnded {
		h.removeOrphanedStatuses(ctx)
	}
	h.Resizes.PodsRemoved()
}

// ended is true when the agent has reported a terminal phase of the pod: the pod has ended, or was rejected.
func (h *Handlers) ended(uid types.UID) bool {
	status, known := h.Statuses.GetPodStatus(uid)
	return known && podutil.IsPodPhaseTerminal(status.Phase)
}

// rejected is true for a static pod that the agent has rejected: its reported phase is terminal, and its termination
// was not requested.
func (h *Handlers) rejected(pod *v1.Pod) bool {
	return kubetypes.IsStaticPod(pod) && h.ended(pod.UID) && !h.Lifecycle.IsPodTerminationRequested(pod.UID)
}

// removeOrphanedStatuses removes the statuses of pods that no source has. It does not wait for housekeeping: if the
// manifest of a static pod is added again before the next round, the terminal phase of the old pod must not be that of
// the new one.
func (h *Handlers) removeOrphanedStatuses(ctx context.Context) {
	podUIDs := map[types.UID]bool{}
	all, mirrors, _ := h.Pods.GetPodsAndMirrorPods()
	for _, pod := range slices.Concat(all, mirrors) {
		podUIDs[pod.UID] = true
	}
	h.Statuses.RemoveOrphanedStatuses(klog.FromContext(ctx), podUIDs)
}

// Reconcile handles pods of which only the status has changed at the source.
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
		// The API server has the final status of the containers, so they are not needed any more.
		if eviction.EvictedAndStopped(&pod.Status) {
			h.RemoveDeadContainers(ctx, pod.UID)
		}
	}
	pending.Retry()
}

// Sync requests the synchronization of the given pods from their workers. Mirror pods are ignored.
func (h *Handlers) Sync(ctx context.Context, pods ...*v1.Pod) {
	start := time.Now()
	for _, pod := range pods {
		if pod, mirror, ok := h.resolve(ctx, pod); ok && !mirror.changed {
			h.update(ctx, start, kubetypes.SyncPodSync, pod.Pod, mirror.Pod)
		}
	}
}

// SyncByUID calls Sync for one pod. It returns false if no source has the pod.
func (h *Handlers) SyncByUID(ctx context.Context, uid types.UID) bool {
	pod, ok := h.Pods.GetPodByUID(uid)
	if ok {
		h.Sync(ctx, pod)
	}
	return ok
}

// SyncIf calls Sync for the pods of all sources for which due returns true.
func (h *Handlers) SyncIf(ctx context.Context, due func(*v1.Pod) bool) {
	pods := slices.DeleteFunc(h.Pods.GetPods(), func(pod *v1.Pod) bool { return !due(pod) })
	if len(pods) == 0 {
		return
	}
	klog.FromContext(ctx).V(4).Info("SyncLoop (SYNC) pods", "total", len(pods), "pods", klog.KObjSlice(pods))
	h.Sync(ctx, pods...)
}

// Retry calls Workers.Retry for those of the given pods that no source has, because there is no specification to send.
// Such a pod may have running containers, or other resources to release.
func (h *Handlers) Retry(uids []types.UID) {
	for _, uid := range uids {
		if _, named := h.Pods.GetPodByUID(uid); !named {
			h.Workers.Retry(uid)
		}
	}
}

// RetryTerminations calls Workers.Retry for the given pods, which repeats their failed terminations and clean-ups.
func (h *Handlers) RetryTerminations(uids []types.UID) {
	for _, uid := range uids {
		h.Workers.Retry(uid)
	}
}

// Restart requests that stopped pods start again, if their source still has them. Housekeeping starts such a pod after
// its worker has finished and was removed. The pods do not go through admission again. A pod whose worker was removed
// already, and that its source still has, is a new pod, which goes through admission.
func (h *Handlers) Restart(ctx context.Context, stopped []*v1.Pod) {
	for _, pod := range stopped {
		if pod, ok := h.Pods.GetPodByUID(pod.UID); ok && h.Lifecycle.IsPodTerminationRequested(pod.UID) {
			_, mirror, _ := h.Pods.GetPodAndMirrorPod(pod)
			h.Workers.UpdatePod(ctx, podworkers.Update{UpdateType: kubetypes.SyncPodCreate, Pod: pod, MirrorPod: mirror})
		}
	}
}

// resolved is a pod or its mirror pod; changed is true for the one that was passed to resolve.
type resolved struct {
	*v1.Pod
	changed bool
}

// resolve returns a pod and its mirror pod, given one of them. It returns false for a mirror pod without a static pod.
func (h *Handlers) resolve(ctx context.Context, given *v1.Pod) (pod, mirror resolved, ok bool) {
	p, m, wasMirror := h.Pods.GetPodAndMirrorPod(given)
	if p == nil {
		klog.FromContext(ctx).V(2).Info("Unable to find pod for mirror pod, skipping", "mirrorPod", klog.KObj(m),
			"mirrorPodUID", given.UID)
		return resolved{}, resolved{}, false
	}
	return resolved{Pod: p, changed: !wasMirror}, resolved{Pod: m, changed: wasMirror}, true
}

// update passes the pod to its worker, unless it waits for admission, or is static and was rejected: a worker would
// have to finish before the manifest can be added again, and the pod would then start without admission.
func (h *Handlers) update(ctx context.Context, start time.Time, kind kubetypes.SyncPodType, pod, mirror *v1.Pod) {
	if h.Waiting.IsWaiting(pod.UID) || kind != kubetypes.SyncPodCreate && h.rejected(pod) {
		return
	}
	h.Workers.UpdatePod(ctx, podworkers.Update{UpdateType: kind, Pod: pod, MirrorPod: mirror, StartTime: start})
}
