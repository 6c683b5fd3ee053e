package kubelet

import (
	"context"

	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"
	"k8s.io/kubernetes/pkg/kubelet/stats"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/server"
)

// statsParts measure node and pods.
type statsParts struct {
	host     *server.StatsHost
	analyzer serverstats.ResourceAnalyzer
	provider *stats.Provider
}

func (b *build) makeStatistics(ctx context.Context) error {
	s := &b.stats
	s.host = server.NewStatsHost(server.StatsHostConfig{
		Pods: b.pods.manager, Status: b.pods.status, Cgroups: b.Machine.ContainerManager, Volumes: b.volumes.manager,
		Raw: b.Machine.CAdvisor, Node: b.sources.view.Node,
	})
	s.analyzer = serverstats.NewResourceAnalyzer(ctx, s.host, b.Config.VolumeStatsAggPeriod.Duration,
		b.Observability.Recorder)
	files := stats.NewHostStatsProvider(kubecontainer.RealOS{}, b.layout.EtcHosts, b.layout.PodLogs())
	s.provider = stats.NewCadvisorStatsProvider(
		b.Machine.CAdvisor, s.analyzer, b.pods.manager, b.runtime.manager, b.pods.status, files, b.Machine.ContainerManager)
	if !cadvisor.UsingLegacyCadvisorStats(b.Config.ContainerRuntimeEndpoint) {
		s.provider = stats.NewCRIStatsProvider(b.Machine.CAdvisor, s.analyzer, b.pods.manager, b.Runtime.Runtime,
			b.Runtime.Images, files,
			b.enabled(features.PodAndContainerStatsFromCRI), s.provider)
	}
	s.host.SetStats(s.provider)
	b.forward.stats = s.provider
	return nil
}

// garbageParts remove containers and images that no pod uses.
type garbageParts struct {
	containers kubecontainer.GC
	images     *reclaim.Manager
	dead       *housekeeping.ContainerDeletor
}

func (b *build) makeGarbageCollection(context.Context) (err error) {
	g, flags := &b.garbage, b.Flags
	g.containers, err = kubecontainer.NewContainerGC(b.runtime.manager, kubecontainer.GCPolicy{
		MinAge:             flags.MinimumGCAge.Duration,
		MaxPerPodContainer: int(flags.MaxPerPodContainerCount),
		MaxContainers:      int(flags.MaxContainerCount),
	}, b.sources.ready)
	if err != nil {
		return err
	}
	g.dead = housekeeping.NewContainerDeletor(b.runtime.manager, max(1, int(flags.MaxPerPodContainerCount)))
	g.images, err = reclaim.New(b.reclaimer())
	return err
}

// reclaimer returns the configuration of what removes images and dead containers, periodically and for eviction.
func (b *build) reclaimer() reclaim.Config {
	cfg, flags, manager := b.Config, b.Flags, b.runtime.manager
	return reclaim.Config{
		Images: manager, Containers: manager, Collector: b.garbage.containers, PodStates: b.pods.lifecycle,
		Active: b.pods.view.Active, SourcesReady: b.sources.ready.AllReady, Pulling: b.runtime.pulls.Pulling,
		Measure: reclaim.MeasureDisks(b.layout.Root(), manager), Stats: b.stats.provider,
		Recorder: b.Observability.Recorder, NodeRef: b.nodeRef, Tracer: b.Observability.TracerProvider, Clock: b.clock,
		Policy: reclaim.Policy{
			HighPercent: int(cfg.ImageGCHighThresholdPercent),
			LowPercent:  int(cfg.ImageGCLowThresholdPercent),
			Images:      plan.Policy{MinAge: cfg.ImageMinimumGCAge.Duration, MaxAge: cfg.ImageMaximumGCAge.Duration},
			Containers: plan.ContainerPolicy{MaxPerContainer: int(flags.MaxPerPodContainerCount),
				MinAge: flags.MinimumGCAge.Duration},
		},
		Hooks:    b.runtime.imageGCHooks,
		Features: reclaim.FeaturesFrom(b.FeatureGates),
	}
}
