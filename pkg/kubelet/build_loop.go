package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/features"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/syncloop"
)

// loopParts pass all events to the pod workers.
type loopParts struct{ loop *syncloop.Loop }

func (b *build) makeSyncLoop(context.Context) error {
	dead := housekeeping.DeadContainers{Statuses: b.pods.cache, Lifecycle: b.pods.lifecycle, Deletor: b.garbage.dead}
	handlers := syncloop.NewHandlers(syncloop.HandlersConfig{
		Pods: b.pods.manager, Workers: b.workers.workers, Lifecycle: b.workers.workers,
		Gate: b.admission.gate, Waiting: b.pressure.waiting,
		Resizes: &syncloop.Resizes{
			Allocations: b.pods.allocations, Status: b.pods.status,
			Enabled:           b.enabled(features.InPlacePodVerticalScaling),
			PodLevel:          b.enabled(features.InPlacePodLevelResourcesVerticalScaling),
			PodLevelResources: b.enabled(features.PodLevelResources),
		},
		Certificates: b.objects.podCertificates, SourcesReady: b.sources.ready, Statuses: b.pods.status,
		Updated:              b.podUpdated(),
		RemoveDeadContainers: dead.RemoveAll,
	})
	b.forward.handlers = handlers
	probes := b.pods.probes
	b.loop.loop = syncloop.New(syncloop.Config{
		Inputs: syncloop.Inputs{
			Pods: b.sources.pods.Updates(), Runtime: b.runtime.events, Devices: b.Machine.ContainerManager.Updates(),
			Liveness: probes.liveness.Updates(), Readiness: probes.readiness.Updates(), Startup: probes.startup.Updates(),
			RetryWaiting: b.pressure.waiting.RetryRequested(),
		},
		Handlers:        handlers,
		RuntimeErrors:   b.volumes.state.RuntimeErrors,
		RuntimeLastDown: b.volumes.state.LastDown,
		SourcesReady:    b.sources.ready,
		Status:          b.pods.status,
		CleanUp:         b.workers.cleaner.CleanUp,
		RestartPods:     b.workers.cleaner.RestartPods,
		ContainerDied:   dead.Exited,
		Due:             b.pods.queue.GetWork,
		ShouldSync:      b.workers.deadline.ShouldSync,
		ResyncInterval:  b.Config.SyncFrequency.Duration,
	})
	return nil
}

// podUpdated returns HandlersConfig.Updated, which checks updates of pods against the declared features (KEP-5328); nil
// without the feature gate.
func (b *build) podUpdated() func(ctx context.Context, old, pod *v1.Pod) {
	if !b.enabled(features.NodeDeclaredFeatures) {
		return nil
	}
	declared, recorder := b.admission.declared, b.Observability.Recorder
	return func(ctx context.Context, old, pod *v1.Pod) { declared.CheckUpdate(ctx, recorder, old, pod) }
}
