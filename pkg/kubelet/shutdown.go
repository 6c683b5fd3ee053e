package kubelet

import (
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/logind"
)

// newShutdownManager returns the manager that stops the pods when the machine shuts down.
func (b *build) newShutdownManager() *nodeshutdown.Manager {
	gated := nodeshutdown.FeaturesFrom(gates)
	cfg := nodeshutdown.Config{
		Periods:  nodeshutdown.Periods(b.Config, gated),
		Connect:  func() (nodeshutdown.Logind, error) { return logind.Connect(b.clock) },
		Pods:     b.shutdownPods(),
		SyncNode: func(ctx context.Context) { b.node.updater.SyncNow(ctx) },
		Recorder: b.Observability.Recorder, NodeRef: b.nodeRef, Clock: b.clock,
	}
	// As stock, which has neither the file nor the metrics without this gate.
	if gated.ByPriority {
		cfg.StateFile = filepath.Join(b.layout.Root(), nodeshutdown.StateFileName)
	}
	return nodeshutdown.New(cfg)
}

// shutdownPods are the pods that use the node. Those that wait for room have nothing that could be stopped; a stop
// would end their wait, and a cancelled shutdown start them without admission.
func (b *build) shutdownPods() nodeshutdown.Pods {
	return nodeshutdown.Pods{
		Active: func() []*v1.Pod { return b.pressure.room.Exclude(b.pods.view.Active()) }, Ready: b.sources.ready.AllReady,
		Terminating: b.pods.lifecycle.IsPodTerminationRequested, Readmitted: b.pressure.readmission.Readmitted,
		Kill: b.workers.workers.KillPod, Unmounted: b.volumes.manager.WaitForAllPodsUnmount, Restart: func(ctx context.Context, stopped []*v1.Pod) { b.loop.handlers.Restart(ctx, stopped) },
	}
}

// shutdownManager passes calls to the shutdown manager, which is built after the workers.
type shutdownManager struct{ b *build }

func (r shutdownManager) RestartsAfterShutdown(pod *v1.Pod) bool {
	return r.b.pressure.shutdown.RestartsAfterShutdown(pod)
}
func (r shutdownManager) PodStopped(uid types.UID) { r.b.pressure.shutdown.PodStopped(uid) }
