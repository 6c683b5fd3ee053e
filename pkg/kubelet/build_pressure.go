package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/exacttimer"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/logind"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pressureconfig"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
)

// pressureParts are what stops pods under pressure and before a shutdown, and the pods that wait for admission.
type pressureParts struct {
	pods        *evictionPods
	readmission *admission.Readmission
	eviction    *eviction.Manager
	// log records decisions, disk writes them to files; disk is nil if that is not configured.
	log      *decisionlog.Log
	disk     *decisionlog.Disk
	waiting  *admission.WaitingPods
	shutdown *nodeshutdown.Manager
}

func (b *build) makePressure(ctx context.Context) (err error) {
	p := &b.pressure
	p.pods = &evictionPods{view: b.pods.view, forward: b.forward, ready: b.sources.ready, clock: b.clock}
	p.readmission = admission.NewReadmission(b.pods.allocations, b.pods.lifecycle)
	b.volumes.state.AddHealthCheck("list of running pods", p.readmission.Healthy)
	if err := b.makeDriver(); err != nil {
		return err
	}
	b.makeDecisionLog()
	if p.eviction, err = b.makeEviction(ctx); err != nil {
		return err
	}
	b.forward.eviction = p.eviction
	p.waiting = b.newWaitingPods()
	p.shutdown = b.newShutdownManager()
	b.forward.waiting, b.forward.shutdown = p.waiting, p.shutdown
	return nil
}

// newWaitingPods returns the owner of the pods that wait for admission.
func (b *build) newWaitingPods() *admission.WaitingPods {
	options, transition := b.pressure.eviction.Options, b.Config.EvictionPressureTransitionPeriod.Duration
	return admission.NewWaitingPods(admission.WaitingPodsConfig{
		Pressure: b.pressure.eviction, Victims: forwardVictims{b.forward}, Status: b.pods.status,
		Recorder: b.recordedAdmissions(decisionlog.Waiting), Clock: b.clock,
		Active: b.pods.view.Active, ShuttingDown: b.forward.shuttingDown,
		MaxWait: func() time.Duration { return min(options().WaitForRoom, transition) },
	})
}

// The eviction manager finds out what its reader of memory can do beside memorywatch.Reader. Without these methods it
// would measure no growth in milliseconds, and the cost of readings by elapsed time.
var (
	_ memorywatch.PodReader   = (*collect.Memory)(nil)
	_ memorywatch.ThreadClock = (*collect.Memory)(nil)
	_ memorywatch.CPUCounter  = (*collect.Memory)(nil)
)

// memoryReader reads memory usage from the cgroup files. Without it eviction polls the stats, as stock does.
func (b *build) memoryReader(ctx context.Context) memorywatch.Reader {
	logger := klog.FromContext(ctx)
	memory, err := collect.NewMemory(collect.Options{
		PodsCgroup: b.Machine.ContainerManager.GetPodCgroupRoot(), CPUs: b.machineInfo.NumCores, Logger: logger,
	})
	if err != nil {
		logger.Error(err, "Failed to read memory from cgroup files, polling stats instead")
		return nil
	}
	if _, err := memory.Stalls(); err != nil {
		logger.Info("Failed to read pressure stall information: page cache and swap do not count as available memory, "+
			"whatever is configured", "err", err)
	}
	return memory
}

func (b *build) evictionThresholds() ([]policy.Threshold, error) {
	cfg := b.Config
	enforced := cfg.EnforceNodeAllocatable
	if b.Flags.ExperimentalNodeAllocatableIgnoreEvictionThreshold {
		enforced = nil
	}
	return settings.ParseThresholds(settings.ThresholdConfig{
		AllocatableEnforced: enforced,
		Hard:                cfg.EvictionHard,
		Soft:                cfg.EvictionSoft,
		SoftGracePeriods:    cfg.EvictionSoftGracePeriod,
		MinimumReclaim:      cfg.EvictionMinimumReclaim,
	})
}

func (b *build) makeEviction(ctx context.Context) (*eviction.Manager, error) {
	cfg := b.Config
	thresholds, err := b.evictionThresholds()
	if err != nil {
		return nil, fmt.Errorf("eviction thresholds: %w", err)
	}
	collector, err := collect.New(collect.Sources{
		Summary: serverstats.NewSummaryProvider(ctx, b.stats.host), DiskInfo: b.stats.provider, Parts: b.stats.provider,
		PodImages: b.garbage.images.PodImages, SeparateDiskGC: b.enabled(features.KubeletSeparateDiskGC), Clock: b.clock,
		CPURates: b.enabled(features.PodAndContainerStatsFromCRI),
	})
	if err != nil {
		return nil, err
	}
	options, plugins := evictionOptions(b.Pressure.Configuration()), b.plugins.eviction
	reporters := b.plugins.reporter
	forward, view, lifecycle := b.forward, b.pods.view, b.pods.lifecycle
	return eviction.New(eviction.Config{
		Options: &options,
		Memory:  b.memoryReader(ctx),
		Kubelet: settings.Kubelet{
			Thresholds: thresholds, PressureTransitionPeriod: cfg.EvictionPressureTransitionPeriod.Duration,
			MaxPodGracePeriodSeconds:      int64(cfg.EvictionMaxPodGracePeriod),
			LocalStorageCapacityIsolation: cfg.LocalStorageCapacityIsolation,
		},
		KernelMemcgNotification: cfg.KernelMemcgNotification,
		CgroupV2:                util.IsCgroup2UnifiedMode(),
		PodCgroupRoot:           b.Machine.ContainerManager.GetPodCgroupRoot(),
		TerminationRequested:    lifecycle.IsPodTerminationRequested,
		TerminationDeadline:     b.workers.workers.TerminationDeadline,
		Collector:               collector,
		RuntimeTimeout:          cfg.RuntimeRequestTimeout.Duration,
		Features:                eviction.FeaturesFrom(b.FeatureGates),
		Kill:                    b.workers.workers.KillPod,
		Reclaimer:               b.garbage.images,
		ActivePods:              b.pressure.pods.active,
		PodByUID:                b.pressure.pods.byUID,
		PodStopped:              func(uid types.UID) bool { return !lifecycle.CouldHaveRunningContainers(uid) },
		PodCleanedUp:            view.Finished,
		Readmitted:              b.pressure.readmission.Readmitted,
		Requests:                plugins.requests,
		APIKiller:               plugins.apiKiller(),
		Fencer:                  b.workers.fences.evictionFencer(),
		Sinks: []eviction.Sink{
			eviction.OnConditionTrue("node-status", forward.pressureChanged),
			eviction.OnRelief("admission", forward.retryWaiting),
			plugins.driver,
			plugins.records,
			reporters.pressure,
			b.pressure.log,
		},
		Recorded: b.pressure.log.Recorded,
		Recorder: b.Observability.Recorder,
		NodeRef:  b.nodeRef,
		Clock:    b.clock,
		// A read of the counters that is a millisecond late is a millisecond less for the victim's fence.
		NewAlarm: newAlarm,
	})
}

// newAlarm returns nil if the kernel has no timers for it.
func newAlarm() eviction.Alarm {
	timer, err := exacttimer.New()
	if err != nil {
		return nil
	}
	return timer
}

// pressureConfiguration passes changes of our own configuration file to the eviction manager and to plugins.
func (b *build) pressureConfiguration() component {
	manager, plugins, reporters := b.pressure.eviction, b.plugins.eviction, b.plugins.reporter
	reloader := pressureconfig.Reloader{
		Loaded: b.Pressure,
		Apply: func(c *v1alpha1.NodePressureConfiguration) {
			manager.SetOptions(evictionOptions(c))
			plugins.apply(c)
			reporters.apply(c)
		},
		Recorder: b.Observability.Recorder, NodeRef: b.nodeRef, Clock: b.clock,
	}
	return runs("pressure configuration", reloader.Run)
}

// newShutdownManager returns the manager that stops the pods when the machine shuts down.
func (b *build) newShutdownManager() *nodeshutdown.Manager {
	gated, clock := nodeshutdown.FeaturesFrom(b.FeatureGates), b.clock
	cfg := nodeshutdown.Config{
		Periods: nodeshutdown.Periods(b.Config, gated),
		Connect: func(ctx context.Context) (nodeshutdown.Logind, error) {
			return logind.Connect(ctx, clock)
		},
		Pods:     b.shutdownPods(),
		SyncNode: b.forward.syncNode,
		Recorder: b.Observability.Recorder, NodeRef: b.nodeRef, Clock: clock,
	}
	// As stock, which has neither the file nor the metrics without this gate.
	if gated.ByPriority {
		cfg.StateFile = filepath.Join(b.layout.Root(), nodeshutdown.StateFileName)
	}
	return nodeshutdown.New(cfg)
}

// shutdownPods are the pods on the node. Pods that wait for admission have nothing that could be stopped; a stop would
// end their wait, and a shutdown that is cancelled would start them without admission.
func (b *build) shutdownPods() nodeshutdown.Pods {
	forward, active := b.forward, b.pods.view.Active
	return nodeshutdown.Pods{
		Active: func() []*v1.Pod { return forward.excludeWaiting(active()) }, SourcesReady: b.sources.ready.AllReady,
		Terminating: b.pods.lifecycle.IsPodTerminationRequested, Readmitted: b.pressure.readmission.Readmitted,
		Kill: b.workers.workers.KillPod, WaitForUnmount: b.volumes.manager.WaitForAllPodsUnmount, Restart: forward.restart,
	}
}
