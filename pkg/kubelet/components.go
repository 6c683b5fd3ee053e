package kubelet

import (
	"context"
	"time"

	inuserns "github.com/moby/sys/userns"
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/events"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/kubernetes/pkg/kubelet/metrics/collectors"
	"k8s.io/kubernetes/pkg/kubelet/oom"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	servermetrics "k8s.io/kubernetes/pkg/kubelet/server/metrics"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/directories"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/netutil"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim"
)

const (
	// containerLogLinks holds the symbolic links to container logs that log shippers read.
	containerLogLinks = "/var/log/containers"
	// restorePatience is how long the start waits for the Node's conditions. Not long: the API server may be a static pod of this node.
	restorePatience = 2 * time.Second
)

// components lists what runs, in the order in which it starts; it is stopped in reverse.
func (b *build) components() []component {
	standalone := b.Clients.Standalone()
	list := []component{
		starts("metrics", b.registerMetrics),
		{name: "directories", start: b.createDirectories},
		// Before any pod is seen; it stops after the pod workers, so that what they began last is written.
		starts("terminations begun before", b.workers.begun.Load),
		runs("terminations", b.workers.begun.Run),
		starts("birth cry", func(context.Context) {
			b.Observability.Recorder.Eventf(b.nodeRef, v1.EventTypeNormal, events.StartingKubelet, "Starting kubelet.")
		}),
		runs("image manager", b.garbage.images.Run),
		{name: "OOM watcher", start: b.watchOOMs},
		starts("resource analyzer", b.stats.analyzer.Start),
		starts("cgroup check", b.checkCgroups),
		starts("pod CIDR", b.tellPodCIDR),
		runs("container garbage collection", b.garbage.images.CollectContainers),
		runs("image garbage collection", b.garbage.images.CollectImages),
		runs("dead container removal", b.garbage.dead.Run),
		starts("allocation manager", b.pods.allocations.Run),
		runs("volume manager", func(ctx context.Context) { b.volumes.manager.Run(ctx, b.sources.ready) }),
	}
	list = append(list, starts("runtime", b.prepareRuntime))
	if b.servers.certificates != nil {
		list = append(list, runs("serving certificates", b.servers.certificates.Run))
	}
	if !standalone {
		list = append(list,
			// Pressure that was there when the agent stopped is known before anything is admitted or evicted.
			starts("node conditions", func(ctx context.Context) { b.node.updater.RestoreAtStart(ctx, restorePatience) }),
			// The first heartbeat asks the runtime itself, so that a restart does not report the node as not ready.
			runs("node status", b.node.updater.Run),
			runs("node lease", b.node.lease.Run),
			runs("mirror pods at start", b.registerMirrorPods),
		)
	}
	list = append(list,
		// Starts what needs the runtime, once it is up; the loop below does nothing before.
		component{name: "runtime watch", run: b.watchRuntime},
		starts("status manager", b.pods.status.Start),
	)
	if b.Pressure.File != "" {
		list = append(list, runs("pressure configuration", b.followPressureConfig))
	}
	if b.Config.MakeIPTablesUtilChains {
		list = append(list, runs("iptables chains", netutil.Run))
	}
	if b.objects.runtimeClasses != nil {
		list = append(list, starts("runtime classes", func(ctx context.Context) { b.objects.runtimeClasses.Start(ctx.Done()) }))
	}
	return append(list,
		starts("PLEG", b.startPLEG),
		starts("resolv.conf check", b.checkResolvConf),
		starts("watchdog", b.startWatchdog),
		component{name: "pod workers", run: b.stopWorkers},
		runs("housekeeping in the background", b.finishHousekeeping),
		// What has pods stopped ends before the pod workers: an agent that stops is no reason to stop another pod.
		runs("preemption", b.admission.victims.Run),
		runs("eviction and node shutdown", func(ctx context.Context) { b.node.killers.run(ctx) }),
		component{name: "sync loop", run: b.loop.loop.Run},
		component{name: "servers", run: b.servers.servers.Run},
	)
}

func (b *build) registerMetrics(context.Context) {
	metrics.Register()
	reclaim.RegisterMetrics()
	metrics.RegisterCollectors(collectors.NewVolumeStatsCollector(b.stats.host), collectors.NewLogMetricsCollector(b.stats.provider.ListPodStats), b.workers.workers.Collector())
	podworkers.RegisterMetrics()
	if issuing, ok := b.objects.podCertificates.(*podcertificate.IssuingManager); ok {
		metrics.RegisterCollectors(collectors.PodCertificateCollectorFor(issuing))
	}
	metrics.SetNodeName(b.Identity.NodeName)
	servermetrics.Register()
}

func (b *build) createDirectories(ctx context.Context) error {
	return directories.Create(ctx, directories.Config{
		Layout: b.layout, ContainerLogLinks: containerLogLinks, Checkpoints: enabled(features.ContainerCheckpoint),
		MakeShared: b.Machine.HostUtil.MakeRShared,
	})
}

// watchOOMs reports OOM kills of system processes as events. Without access to the kernel log the agent does not start, as stock,
// unless it runs in a user namespace.
func (b *build) watchOOMs(ctx context.Context) error {
	watcher, err := oom.NewWatcher(b.Observability.Recorder)
	if err != nil && inuserns.RunningInUserNS() && enabled(features.KubeletInUserNamespace) {
		b.logger(ctx).V(2).Info("No OOM watcher in a user namespace", "err", err)
		return nil
	}
	if err != nil || watcher == nil {
		return err
	}
	return watcher.Start(ctx, b.nodeRef)
}

// tellPodCIDR passes the configured pod CIDR on to the runtime; with a cloud allocator it comes from the Node later.
func (b *build) tellPodCIDR(ctx context.Context) {
	if _, err := b.node.updater.UpdatePodCIDR(ctx, b.Config.PodCIDR); err != nil {
		b.logger(ctx).Error(err, "Pod CIDR update failed")
	}
}

func (b *build) checkCgroups(ctx context.Context) {
	version := 1
	if util.IsCgroup2UnifiedMode() {
		version = 2
	}
	if err := nodestatus.CheckCgroups(b.Observability.Recorder, b.nodeRef, version); err != nil {
		b.logger(ctx).V(2).Info("Warning: cgroup check", "error", err)
	}
}

// stopWorkers waits for the end of the agent and then for the operations that are under way. Workers start with their first pod.
func (b *build) stopWorkers(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return b.workers.workers.Stop(ctx)
}

// checkResolvConf warns of limits that the node's resolver configuration exceeds; it has nothing to do with single pods.
func (b *build) checkResolvConf(ctx context.Context) {
	if b.Config.ResolverConfig != "" {
		b.runtime.dns.CheckLimitsForResolvConf(b.logger(ctx))
	}
}

func (b *build) startPLEG(context.Context) {
	b.runtime.pleg.Start()
	if b.runtime.eventedPleg != nil {
		b.runtime.eventedPleg.Start()
	}
}

func (b *build) startWatchdog(context.Context) {
	if checker := b.Observability.HealthChecker; checker != nil {
		checker.SetHealthCheckers(b.serverHost(), b.Machine.ContainerManager.GetHealthCheckers())
	}
}

// registerMirrorPods makes the mirror pods of the static pods known at start as soon as the node is registered.
func (b *build) registerMirrorPods(ctx context.Context) {
	housekeeping.RegisterStaticPods(ctx, housekeeping.StaticPods{
		Node: b.sources.view.Lookup, Pods: b.pods.manager.GetStaticPodToMirrorPodMap, Reconcile: b.workers.syncer.ReconcileMirrorPod,
	})
}

// finishHousekeeping waits for what housekeeping removes in the background.
func (b *build) finishHousekeeping(ctx context.Context) {
	<-ctx.Done()
	b.workers.cleaner.Wait()
}
