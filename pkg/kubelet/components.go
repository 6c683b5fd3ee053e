package kubelet

import (
	"context"
	"net/http"
	"slices"

	inuserns "github.com/moby/sys/userns"
	v1 "k8s.io/api/core/v1"
	compbasemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/metrics/collectors"
	"k8s.io/kubernetes/pkg/kubelet/oom"
	servermetrics "k8s.io/kubernetes/pkg/kubelet/server/metrics"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/directories"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/netutil"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim"
)

// containerLogLinks has the symbolic links to container logs that log shippers read.
const containerLogLinks = "/var/log/containers"

// components lists what runs, in the order in which it starts; it stops in reverse. What is listed as afterRuntime
// starts in the same order when the container runtime is up for the first time, and stops where it is listed.
func (b *build) components() []component {
	return slices.Concat(
		[]component{
			b.startInformers(),
			b.metrics(),
			b.directories(),
			// Before any pod is seen; it stops after the pod workers, so that their last terminations are recorded.
			starts("terminations begun before", b.workers.records.Load),
			runs("terminations", b.workers.records.Run),
			b.startEvent(),
			runs("image manager", b.garbage.images.Run),
			b.oomWatcher(),
			starts("resource analyzer", b.stats.analyzer.Start),
			b.cgroupCheck(),
			b.podCIDR(),
			runs("container garbage collection", b.garbage.images.CollectContainers),
			runs("image garbage collection", b.garbage.images.CollectImages),
			runs("dead container removal", b.garbage.dead.Run),
			starts("allocation manager", b.pods.allocations.Run),
			b.volumeManager(),
		},
		// What needs the runtime stops after the pod workers, which use it.
		afterRuntime(b.runtimeComponents()...),
		optional(b.objects.issuing != nil, b.podCertificates),
		optional(b.servers.certificates != nil, b.servingCertificates),
		b.nodeReports(),
		[]component{
			// Starts what is listed as afterRuntime; the sync loop does nothing before.
			runs("runtime watch", b.node.runtimeUp.Run),
			starts("status manager", b.pods.status.Start),
		},
		optional(b.Pressure.File != "", b.pressureConfiguration),
		optional(b.pressure.disk != nil, b.decisionFiles),
		optional(b.Config.MakeIPTablesUtilChains, func() component { return runs("iptables chains", netutil.Run) }),
		optional(b.objects.runtimeClasses != nil, b.runtimeClasses),
		[]component{
			b.plegs(),
			b.resolvConfCheck(),
			b.watchdog(),
			// Workers start with their first pod. A stop waits for the operations that are in progress.
			ends("pod workers", b.workers.workers.Stop),
			ends("housekeeping in the background", waitFor(b.workers.cleaner.Wait)),
			// What has pods stopped ends before the pod workers: the stop of the agent is no reason to stop another pod.
			runs("preemption", b.admission.preemption.Run),
		},
		afterRuntime(b.podStoppers()...),
		[]component{
			{name: "sync loop", run: b.loop.loop.Run},
			{name: "servers", run: b.servers.servers.Run},
		},
	)
}

// runtimeComponents need a container runtime that is up. The order is stock's.
func (b *build) runtimeComponents() []component {
	cadvisor, stats := b.Machine.CAdvisor, b.stats.provider
	return slices.Concat([]component{
		b.podsAtStart(),
		{name: "cAdvisor", start: func(context.Context) error { return cadvisor.Start() }},
		// One collection, so that the capacity of the root file system is known: the container manager does not start
		// without. An error shows there.
		starts("root file system stats", func(context.Context) { _, _, _ = stats.GetCgroupStats("/", true) }),
		b.containerManager(),
	},
		// After the container manager, which finds the cgroups above those of pods; the sync loop begins after that.
		optional(b.workers.fences != nil, b.workers.fences.atStart),
		[]component{
			starts("container logs", b.runtime.logs.Start),
			b.pluginRegistry(),
			b.reporters(),
		})
}

// podStoppers stop pods for the sake of the node. Eviction needs cAdvisor, to find out whether images have a file
// system of their own.
func (b *build) podStoppers() []component {
	manager, plugins := b.pressure.shutdown, b.plugins.eviction
	shutdown := ends("node shutdown", waitFor(manager.Wait))
	shutdown.start = func(ctx context.Context) error { manager.Start(ctx); return nil }
	fences := optional(b.workers.fences != nil, b.workers.fences.component)
	return append(fences, []component{
		runs("eviction", b.pressure.eviction.Run),
		runsOnDemand("eviction plugins", &plugins.required, plugins.driver.Run),
		shutdown,
	}...)
}

// reporters calls reporter plugins and publishes their reports. The managers that kubelet-reporter-plugin reads have
// been started before.
func (b *build) reporters() component {
	reporters, eviction, updater := b.plugins.reporter, b.plugins.eviction, b.node.updater
	return runsOnDemand("reporter plugins", &reporters.required, func(ctx context.Context) {
		reporters.run(ctx, updater, eviction)
	})
}

// optional returns the component that make returns, or none.
func optional(wanted bool, make func() component) []component {
	if !wanted {
		return nil
	}
	return []component{make()}
}

// waitFor is wait for ends. A wait without a context is bounded by the runner.
func waitFor(wait func()) func(context.Context) error {
	return func(context.Context) error { wait(); return nil }
}

func (b *build) metrics() component {
	list := []compbasemetrics.StableCollector{
		collectors.NewVolumeStatsCollector(b.stats.host), collectors.NewLogMetricsCollector(b.stats.provider.ListPodStats),
		b.workers.workers.Collector(), b.pressure.log.Collector(),
	}
	if b.objects.issuing != nil {
		list = append(list, collectors.PodCertificateCollectorFor(b.objects.issuing))
	}
	node := b.Identity.NodeName
	return starts("metrics", func(context.Context) {
		metrics.Register()
		reclaim.RegisterMetrics()
		podworkers.RegisterMetrics()
		metrics.RegisterCollectors(list...)
		metrics.SetNodeName(node)
		servermetrics.Register()
	})
}

func (b *build) directories() component {
	cfg := directories.Config{
		Layout: b.layout, ContainerLogLinks: containerLogLinks, Checkpoints: b.enabled(features.ContainerCheckpoint),
		MakeShared: b.Machine.HostUtil.MakeRShared,
	}
	return component{name: "directories", start: func(ctx context.Context) error { return directories.Create(ctx, cfg) }}
}

func (b *build) startEvent() component {
	recorder, node := b.Observability.Recorder, b.nodeRef
	return starts("start event", func(context.Context) {
		recorder.Eventf(node, v1.EventTypeNormal, events.StartingKubelet, "Starting kubelet.")
	})
}

// oomWatcher reports OOM kills of system processes as events. Without access to the kernel log the agent does not
// start, as stock, unless it runs in a user namespace.
func (b *build) oomWatcher() component {
	recorder, node := b.Observability.Recorder, b.nodeRef
	optional := inuserns.RunningInUserNS() && b.enabled(features.KubeletInUserNamespace)
	return component{name: "OOM watcher", start: func(ctx context.Context) error {
		watcher, err := oom.NewWatcher(recorder)
		if err != nil && optional {
			klog.FromContext(ctx).V(2).Info("No OOM watcher in a user namespace", "err", err)
			return nil
		}
		if err != nil || watcher == nil {
			return err
		}
		return watcher.Start(ctx, node)
	}}
}

func (b *build) cgroupCheck() component {
	recorder, node, version := b.Observability.Recorder, b.nodeRef, 1
	if util.IsCgroup2UnifiedMode() {
		version = 2
	}
	return starts("cgroup check", func(ctx context.Context) {
		if err := nodestatus.CheckCgroups(recorder, node, version); err != nil {
			klog.FromContext(ctx).V(2).Info("Warning: cgroup check", "error", err)
		}
	})
}

func (b *build) watchdog() component {
	checker, loop, checkers := b.Observability.HealthChecker, hangCheck(b.loop.loop.HangCheck),
		b.Machine.ContainerManager.GetHealthCheckers()
	return starts("watchdog", func(context.Context) {
		if checker != nil {
			checker.SetHealthCheckers(loop, checkers)
		}
	})
}

// hangCheck is the check of the sync loop for systemd's watchdog.
type hangCheck func(*http.Request) error

// SyncLoopHealthCheck has the name that stock's watchdog calls.
func (c hangCheck) SyncLoopHealthCheck(r *http.Request) error { return c(r) }
