package kubelet

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pressureconfig"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
)

// pressureParts stop pods for the sake of the node.
type pressureParts struct {
	readmission *admission.Readmission
	eviction    *eviction.Manager
	room        *admission.WaitingPods
	shutdown    *nodeshutdown.Manager
}

func (b *build) makePressure(ctx context.Context) (err error) {
	p := &b.pressure
	p.readmission = admission.NewReadmission(b.pods.allocations, b.pods.lifecycle)
	b.volumes.state.AddHealthCheck("list of running pods", p.readmission.Healthy)
	if p.eviction, err = b.makeEviction(ctx); err != nil {
		return err
	}
	p.room = b.newWaitingPods()
	p.shutdown = b.newShutdownManager()
	return nil
}

// newWaitingPods returns the owner of the pods that wait for admission.
func (b *build) newWaitingPods() *admission.WaitingPods {
	return admission.NewWaitingPods(admission.WaitingPodsConfig{
		Pressure: b.pressure.eviction, Victims: victimsOf{b}, Status: b.pods.status, Recorder: b.Observability.Recorder, Clock: b.clock,
		Active: b.pods.view.Active, ShuttingDown: func() bool { return b.pressure.shutdown.ShutdownStatus() != nil },
		MaxWait: func() time.Duration {
			return min(b.pressure.eviction.Options().WaitForRoom, b.Config.EvictionPressureTransitionPeriod.Duration)
		},
	})
}

// victimsOf calls preemption, which is built after the waiting pods.
type victimsOf struct{ b *build }

func (v victimsOf) InProgress(uid types.UID) bool            { return v.b.admission.victims.InProgress(uid) }
func (v victimsOf) Begin(ctx context.Context, uid types.UID) { v.b.admission.victims.Begin(ctx, uid) }
func (v victimsOf) Forget(uid types.UID)                     { v.b.admission.victims.Forget(uid) }

// memoryReader reads memory straight from the cgroup files. Without it eviction polls the statistics, as stock does.
func (b *build) memoryReader(ctx context.Context) eviction.MemoryReader {
	memory, err := collect.NewMemory(collect.Options{
		PodsCgroup: b.Machine.ContainerManager.GetPodCgroupRoot(), Logger: b.logger(ctx),
	})
	if err != nil {
		b.logger(ctx).Error(err, "Memory is watched by polling statistics only")
		return nil
	}
	if _, err := memory.Stalls(); err != nil {
		b.logger(ctx).Info("Pressure stall information cannot be read, so page cache and swap do not count as available memory, whatever is configured", "err", err)
	}
	return memory
}

func (b *build) makeEviction(ctx context.Context) (*eviction.Manager, error) {
	cfg := b.Config
	enforced := cfg.EnforceNodeAllocatable
	if b.Flags.ExperimentalNodeAllocatableIgnoreEvictionThreshold {
		enforced = nil
	}
	thresholds, err := eviction.ParseThresholds(eviction.ThresholdConfig{
		AllocatableEnforced: enforced,
		Hard:                cfg.EvictionHard,
		Soft:                cfg.EvictionSoft,
		SoftGracePeriods:    cfg.EvictionSoftGracePeriod,
		MinimumReclaim:      cfg.EvictionMinimumReclaim,
	})
	if err != nil {
		return nil, fmt.Errorf("eviction thresholds: %w", err)
	}
	options := b.Pressure.Options()
	return eviction.New(eviction.Config{
		Options:                       &options,
		Memory:                        b.memoryReader(ctx),
		Thresholds:                    thresholds,
		PressureTransitionPeriod:      cfg.EvictionPressureTransitionPeriod.Duration,
		MaxPodGracePeriodSeconds:      int64(cfg.EvictionMaxPodGracePeriod),
		KernelMemcgNotification:       b.Config.KernelMemcgNotification,
		PodCgroupRoot:                 b.Machine.ContainerManager.GetPodCgroupRoot(),
		LocalStorageCapacityIsolation: cfg.LocalStorageCapacityIsolation,
		DiskInfo:                      b.stats.provider,
		TerminationRequested:          b.pods.lifecycle.IsPodTerminationRequested,
		Summary:                       serverstats.NewSummaryProvider(ctx, b.stats.host),
		Parts:                         b.stats.provider,
		PodFigures:                    b.stats.provider.ListPodStats,
		RuntimeTimeout:                cfg.RuntimeRequestTimeout.Duration,
		Kill:                          b.workers.workers.KillPod,
		Reclaimer:                     b.garbage.images,
		PodImages:                     b.garbage.images.PodImages,
		ActivePods:                    b.enteredPods,
		PodByUID:                      b.enteredPod,
		PodStopped:                    func(uid types.UID) bool { return !b.pods.lifecycle.CouldHaveRunningContainers(uid) },
		PodCleanedUp:                  b.pods.view.Finished,
		Readmitted:                    b.pressure.readmission.Readmitted,
		Sinks: []eviction.Sink{
			eviction.OnConditionTrue("node-status", func() { b.node.updater.PressureChanged() }),
			eviction.OnRelief("admission", func() { b.pressure.room.RequestRetry() }),
		},
		Recorder: b.Observability.Recorder,
		NodeRef:  b.nodeRef,
		Clock:    b.clock,
	})
}

// pressureConfiguration passes changes of our own configuration file to the eviction manager.
func (b *build) pressureConfiguration() component {
	reloader := pressureconfig.Reloader{
		Loaded: b.Pressure, Apply: b.pressure.eviction.SetOptions,
		Recorder: b.Observability.Recorder, NodeRef: b.nodeRef, Clock: b.clock,
	}
	return runs("pressure configuration", reloader.Run)
}
