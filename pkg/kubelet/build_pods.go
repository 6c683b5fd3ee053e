package kubelet

import (
	"context"
	"fmt"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/allocations"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podview"
)

// podParts have the state of each pod: configuration, lifecycle, status, allocation.
type podParts struct {
	manager     kubepod.Manager
	mirrors     kubepod.MirrorClient
	lifecycle   *podlifecycle.Store
	status      status.Manager
	allocations *allocations.Manager
	view        *podview.View
	cache       kubecontainer.Cache
	queue       queue.WorkQueue
	reasons     *podstatus.ReasonCache
	probes      probeResults
}

// probeResults are used by the prober, the runtime manager and the sync loop.
type probeResults struct {
	liveness, readiness, startup results.Manager
}

func (b *build) makePods(context.Context) error {
	p := &b.pods
	p.probes = probeResults{
		liveness: results.NewManager(), readiness: results.NewManager(), startup: results.NewManager(),
	}
	p.cache = kubecontainer.NewCache()
	p.queue = queue.NewBasicWorkQueue(b.clock)
	p.reasons = podstatus.NewReasonCache()
	p.manager = kubepod.NewBasicPodManager()
	p.mirrors = kubepod.NewBasicMirrorClient(b.Clients.Kube, string(b.Identity.NodeName), b.sources.nodeLister)
	p.lifecycle = podlifecycle.NewStore()
	safety := podview.DeletionSafety{Containers: p.lifecycle}
	if b.enabled(features.DynamicResourceAllocation) {
		safety.Devices = b.Machine.ContainerManager
	}
	p.status = status.NewManager(b.Clients.Kube, p.manager, safety, b.Observability.PodStartup)
	p.view = podview.New(p.manager, p.lifecycle, p.status)
	return b.makeAllocations()
}

// makeAllocations reads the checkpoint with the resources that earlier runs of the agent have allocated to pods.
func (b *build) makeAllocations() (err error) {
	p := &b.pods
	checkpoint, err := state.NewStateCheckpoint(b.layout.Root(), allocations.CheckpointName)
	if err != nil {
		return fmt.Errorf("allocated resources: %w", err)
	}
	p.allocations, err = allocations.New(allocations.Config{
		Checkpoint: checkpoint, Status: p.status, Sync: b.forward.syncNow,
		ActivePods: p.view.Active, PodByUID: p.manager.GetPodByUID,
		SourcesReady: b.sources.ready, Recorder: b.Observability.Recorder,
	})
	if err != nil {
		return err
	}
	p.view = p.view.WithAllocations(p.allocations)
	return nil
}
