package kubelet

import (
	"context"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/events"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/syncloop"
)

// loopParts bring everything that happens to the pod workers.
type loopParts struct {
	handlers *syncloop.Handlers
	loop     *syncloop.Loop
}

func (b *build) makeSyncLoop(context.Context) error {
	dead := housekeeping.DeadContainers{Statuses: b.pods.cache, Lifecycle: b.pods.lifecycle, Deletor: b.garbage.dead}
	b.loop.handlers = syncloop.NewHandlers(syncloop.HandlersConfig{
		Pods: b.pods.manager, Workers: b.workers.workers, Lifecycle: b.workers.workers, Gate: b.admission.gate, Room: b.pressure.room,
		Resizes: &syncloop.Resizes{
			Allocations: b.pods.allocations, Status: b.pods.status,
			Enabled:           enabled(features.InPlacePodVerticalScaling),
			PodLevel:          enabled(features.InPlacePodLevelResourcesVerticalScaling),
			PodLevelResources: enabled(features.PodLevelResources),
		},
		Certificates: b.objects.podCertificates, SourcesReady: b.sources.ready, Updated: b.checkDeclaredFeatures,
		RemoveDeadContainers: b.removeDeadContainers,
	})
	probes := b.pods.probes
	b.loop.loop = syncloop.New(syncloop.Config{
		Inputs: syncloop.Inputs{
			Pods: b.sources.pods.Updates(), Runtime: b.runtime.events, Devices: b.Machine.ContainerManager.Updates(),
			Liveness: probes.liveness.Updates(), Readiness: probes.readiness.Updates(), Startup: probes.startup.Updates(),
			Room: b.pressure.room.Calls(),
		},
		Handlers:       b.loop.handlers,
		RuntimeErrors:  b.volumes.state.RuntimeErrors,
		SourcesReady:   b.sources.ready,
		Status:         b.pods.status,
		CleanUp:        b.workers.cleaner.CleanUp,
		RestartPods:    b.workers.cleaner.RestartPods,
		ContainerDied:  dead.Exited,
		Due:            b.pods.queue.GetWork,
		ShouldSync:     b.workers.deadline.ShouldSync,
		ResyncInterval: b.Config.SyncFrequency.Duration,
	})
	return nil
}

// removeDeadContainers removes all containers of an evicted pod, once the API server has its final status.
func (b *build) removeDeadContainers(ctx context.Context, uid types.UID) {
	if status, err := b.pods.cache.Get(uid); err == nil {
		b.garbage.dead.Delete(ctx, status, "", true)
	}
}

// checkDeclaredFeatures warns when an update of a running pod asks for something this node does not have (KEP-5328).
func (b *build) checkDeclaredFeatures(ctx context.Context, old, pod *v1.Pod) {
	if old == nil || !enabled(features.NodeDeclaredFeatures) {
		return
	}
	logger, framework, declared := klog.FromContext(ctx), ndf.DefaultFramework, b.admission.declared
	required, err := framework.InferForPodUpdate(
		&ndf.PodInfo{Spec: &old.Spec, Status: &old.Status}, &ndf.PodInfo{Spec: &pod.Spec, Status: &pod.Status}, declared.Version)
	if err != nil || required.IsEmpty() {
		if err != nil {
			logger.Error(err, "Cannot tell which node features the updated pod needs", "pod", klog.KObj(pod))
		}
		return
	}
	match, err := framework.MatchNodeFeatureSet(required, declared.Set)
	if err != nil {
		logger.Error(err, "Cannot match the updated pod with the node's features", "pod", klog.KObj(pod))
		return
	}
	if !match.IsMatch {
		b.Observability.Recorder.WithLogger(logger).Eventf(pod, v1.EventTypeWarning, events.FailedNodeDeclaredFeaturesCheck,
			"Pod requires node features that are not available: %s", strings.Join(match.UnsatisfiedRequirements, ", "))
	}
}
