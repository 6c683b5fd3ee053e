package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/kubernetes/pkg/kubelet/stats"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/syncloop"
)

// forward has the parts that are called by parts which are built before them. Each step of New sets its own; all are
// set when New returns, and none is called before Run. There is no other way against the order of the steps, and parts
// refer to forward instead of build, so that build is garbage after New.
type forward struct {
	pleg       pleg.PodLifecycleEventGenerator
	stats      *stats.Provider
	workers    *podworkers.Workers
	waiting    *admission.WaitingPods
	shutdown   *nodeshutdown.Manager
	preemption *preemption.Handler
	handlers   *syncloop.Handlers
	eviction   *eviction.Manager
	decisions  *decisionlog.Log
	updater    *nodestatus.Updater
}

// relist makes the PLEG inspect the pod at once, reinspect with its next relist.
func (f *forward) relist(uid types.UID)    { f.pleg.RequestRelist(uid) }
func (f *forward) reinspect(uid types.UID) { f.pleg.RequestReinspect(uid) }

// syncNow synchronizes and inspects a pod without waiting for the next event. The allocation manager calls it after a
// resize.
func (f *forward) syncNow(pod *v1.Pod) {
	f.handlers.Sync(context.Background(), pod)
	f.relist(pod.UID)
}

// requeue makes the worker of the pod synchronize it once more. Workers merge updates, so requests do not pile up.
func (f *forward) requeue(ctx context.Context, pod, mirror *v1.Pod) {
	f.workers.UpdatePod(ctx, podworkers.Update{UpdateType: kubetypes.SyncPodUpdate, Pod: pod, MirrorPod: mirror})
}

func (f *forward) restart(ctx context.Context, stopped []*v1.Pod) { f.handlers.Restart(ctx, stopped) }

func (f *forward) podStats(
	ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus,
) (*statsapi.PodStats, error) {
	return f.stats.PodCPUAndMemoryStats(ctx, pod, status)
}

func (f *forward) isWaiting(uid types.UID) bool            { return f.waiting.IsWaiting(uid) }
func (f *forward) excludeWaiting(pods []*v1.Pod) []*v1.Pod { return f.waiting.Exclude(pods) }
func (f *forward) retryWaiting()                           { f.waiting.RequestRetry() }

func (f *forward) wakeEviction()                             { f.eviction.Wake() }
func (f *forward) evictionsInFlight() []eviction.InFlightPod { return f.eviction.InFlight() }

func (f *forward) syncNode(ctx context.Context) { f.updater.SyncNow(ctx) }
func (f *forward) pressureChanged()             { f.updater.PressureChanged() }
func (f *forward) shuttingDown() bool           { return f.shutdown.ShutdownStatus() != nil }

// forwardVictims implements admission.Victims.
type forwardVictims struct{ *forward }

func (f forwardVictims) InProgress(uid types.UID) bool            { return f.preemption.InProgress(uid) }
func (f forwardVictims) Begin(ctx context.Context, uid types.UID) { f.preemption.Begin(ctx, uid) }
func (f forwardVictims) Forget(uid types.UID)                     { f.preemption.Forget(uid) }

// forwardShutdown implements podsync.ShutdownManager.
type forwardShutdown struct{ *forward }

func (f forwardShutdown) RestartsAfterShutdown(pod *v1.Pod) bool {
	return f.shutdown.RestartsAfterShutdown(pod)
}
func (f forwardShutdown) PodStopped(uid types.UID) { f.shutdown.PodStopped(uid) }
