package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/images"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"
	"k8s.io/kubernetes/pkg/kubelet/stats"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
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
	s.analyzer = serverstats.NewResourceAnalyzer(ctx, s.host, b.Config.VolumeStatsAggPeriod.Duration, b.Observability.Recorder)
	files := stats.NewHostStatsProvider(kubecontainer.RealOS{}, b.layout.EtcHosts, b.layout.PodLogs())
	s.provider = stats.NewCadvisorStatsProvider(
		b.Machine.CAdvisor, s.analyzer, b.pods.manager, b.runtime.manager, b.pods.status, files, b.Machine.ContainerManager)
	if !cadvisor.UsingLegacyCadvisorStats(b.Config.ContainerRuntimeEndpoint) {
		s.provider = stats.NewCRIStatsProvider(b.Machine.CAdvisor, s.analyzer, b.pods.manager, b.Runtime.Runtime, b.Runtime.Images, files,
			enabled(features.PodAndContainerStatsFromCRI), s.provider)
	}
	s.host.UseStats(s.provider)
	return nil
}

func (b *build) podStats(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus) (*statsapi.PodStats, error) {
	return b.stats.provider.PodCPUAndMemoryStats(ctx, pod, status)
}

// garbageParts remove containers and images that nobody uses.
type garbageParts struct {
	containers kubecontainer.GC
	images     images.ImageGCManager
	dead       *housekeeping.ContainerDeletor
}

func (b *build) makeGarbageCollection(context.Context) (err error) {
	g, cfg, flags := &b.garbage, b.Config, b.Flags
	g.containers, err = kubecontainer.NewContainerGC(b.runtime.manager, kubecontainer.GCPolicy{
		MinAge:             flags.MinimumGCAge.Duration,
		MaxPerPodContainer: int(flags.MaxPerPodContainerCount),
		MaxContainers:      int(flags.MaxContainerCount),
	}, b.sources.ready)
	if err != nil {
		return err
	}
	g.dead = housekeeping.NewContainerDeletor(b.runtime.manager, max(1, int(flags.MaxPerPodContainerCount)))
	g.images, err = images.NewImageGCManager(b.runtime.manager, b.stats.provider, b.runtime.imageGCHooks, b.Observability.Recorder, b.nodeRef,
		images.ImageGCPolicy{
			MinAge:               cfg.ImageMinimumGCAge.Duration,
			MaxAge:               cfg.ImageMaximumGCAge.Duration,
			HighThresholdPercent: int(cfg.ImageGCHighThresholdPercent),
			LowThresholdPercent:  int(cfg.ImageGCLowThresholdPercent),
		}, b.Observability.TracerProvider)
	return err
}
