package housekeeping

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// restarts passes pods to the workers that are configured and admitted, and have no worker. That happens if a pod was
// deleted and created again with the same UID while its worker still existed: usual for static pods with a fixed UID, a
// mistake for all others. The pods are not admitted again. Pods that wait for admission are left out. While the machine
// shuts down none is restarted; after a shutdown that is cancelled the next round does it.
type restarts struct {
	pods         Pods
	workers      Updater
	active       ActiveFilter
	waiting      func(types.UID) bool
	shuttingDown func() bool
}

func restartsOf(c Config) restarts {
	return restarts{
		pods: c.Pods, workers: c.Workers, active: c.Active, waiting: c.Waiting, shuttingDown: c.ShuttingDown,
	}
}

func (restarts) Name() string { return "pods to be restarted" }

func (t restarts) Run(ctx context.Context, r *round) error {
	if t.shuttingDown() {
		return nil
	}
	logger := klog.FromContext(ctx)
	var regular, static int
	for _, wanted := range t.active.FilterActive(r.pods) {
		if _, known := r.known[wanted.UID]; known || t.waiting(wanted.UID) {
			continue
		}
		logger.V(3).Info(
			"Pod will be restarted because it is in the desired set and not known to the pod workers (likely due to UID reuse)",
			"pod", klog.KObj(wanted), "podUID", wanted.UID)
		pod, mirrorPod, wasMirror := t.pods.GetPodAndMirrorPod(wanted)
		if pod == nil || wasMirror {
			logger.V(2).Info("Restartable pod is a mirror pod, which cannot be", "podUID", wanted.UID)
			continue
		}
		t.workers.UpdatePod(ctx, podworkers.Update{UpdateType: kubetypes.SyncPodCreate, Pod: pod, MirrorPod: mirrorPod})
		isStatic := kubetypes.IsStaticPod(wanted)
		r.known[wanted.UID] = podworkers.KnownPod{State: podlifecycle.WorkSync, HasConfig: true, Static: isStatic}
		if isStatic {
			static++
		} else {
			regular++
		}
	}
	metrics.RestartedPodTotal.WithLabelValues(staticLabel(true)).Add(float64(static))
	metrics.RestartedPodTotal.WithLabelValues(staticLabel(false)).Add(float64(regular))
	return nil
}

// terminatedPods passes pods to the workers that are deleted and in a terminal phase, and have no worker, such as
// rejected pods, so that the API server can remove them.
type terminatedPods struct{ workers Updater }

func (terminatedPods) Name() string { return "terminated pods without a worker" }

func (t terminatedPods) Run(ctx context.Context, r *round) error {
	// A running pod is stopped by runtimeOrphans first.
	running := sets.New[types.UID]()
	for _, pod := range r.running {
		running.Insert(pod.ID)
	}
	for _, pod := range r.pods {
		_, known := r.known[pod.UID]
		if known || running.Has(pod.UID) || !deletedAndTerminal(pod) {
			continue
		}
		klog.FromContext(ctx).V(3).Info("Handling termination and deletion of the pod to pod workers", "pod", klog.KObj(pod),
			"podUID", pod.UID)
		t.workers.UpdatePod(ctx, podworkers.Update{UpdateType: kubetypes.SyncPodKill, Pod: pod})
	}
	return nil
}

// deletedAndTerminal excludes pods that are not in a terminal phase: the sync loop may be about to start their worker.
func deletedAndTerminal(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && podutil.IsPodPhaseTerminal(pod.Status.Phase)
}

// orphanGraceSeconds is the grace period of a pod without specification.
const orphanGraceSeconds = 1

// runtimeOrphans stops running pods without a worker. SyncKnownPods stops those with a worker.
type runtimeOrphans struct{ workers Updater }

func (runtimeOrphans) Name() string { return "running pods without a specification" }

func (t runtimeOrphans) Run(ctx context.Context, r *round) error {
	var orphans []*kubecontainer.Pod
	for _, pod := range r.running {
		if _, known := r.known[pod.ID]; known {
			continue
		}
		orphans = append(orphans, pod)
		r.known[pod.ID] = podworkers.KnownPod{State: podlifecycle.WorkTerminating, Orphan: true}
		klog.FromContext(ctx).V(2).Info("Clean up containers for orphaned pod we had not seen before",
			"pod", klog.KRef(pod.Namespace, pod.Name), "podUID", pod.ID, "gracePeriod", orphanGraceSeconds)
		grace := int64(orphanGraceSeconds)
		t.workers.UpdatePod(ctx, podworkers.Update{
			UpdateType: kubetypes.SyncPodKill,
			RunningPod: pod,
			Kill:       &podworkers.KillOptions{GracePeriod: &grace},
		})
	}
	metrics.OrphanedRuntimePodTotal.Add(float64(len(orphans)))
	return nil
}
