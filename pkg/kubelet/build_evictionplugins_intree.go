package kubelet

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/sources"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/publish"
)

// newPluginsInAgent makes the eviction plugins in the agent. They read nothing before they are called.
func (b *build) newPluginsInAgent(p *evictionPlugins) (*plugins.Set, error) {
	cgroups := b.podCgroups()
	resource := sources.NewCustomNodeResource(b.Clients.Reporter, publish.Resource, string(b.Identity.NodeName), b.clock)
	return plugins.New(plugins.Config{
		Settings: func() plugins.Settings {
			s := p.settings.Load()
			return plugins.Settings{
				PluginSettings: s.Settings, Levels: s.Skip.Levels, Period: s.Period, MonitoringPeriod: s.monitoringPeriod,
			}
		},
		Recorder: b.Observability.Recorder, Resident: sources.NewResident(cgroups), Node: b.sources.view.Lookup,
		Zones: sources.NewZoneinfo("/proc/zoneinfo"), NUMAMemory: sources.NewNUMAMemory(cgroups),
		CPU:        sources.NewCPU("/proc", cgroups, b.Machine.ContainerManager.GetPodCgroupRoot(), b.machineInfo.NumCores),
		NodeMemory: sources.NewNodeMemory("/proc"), PodMemory: sources.NewPodMemory(cgroups),
		CustomNodeResource: resource.Allocatable,
	})
}

// podCgroups returns how the cgroups of pods are found.
func (b *build) podCgroups() sources.Cgroups {
	containers := b.Machine.ContainerManager
	return sources.Cgroups{
		Unified: util.IsCgroup2UnifiedMode(), Mounts: b.workers.cgroupMounts,
		Path: func(pod *v1.Pod) string {
			_, path := containers.NewPodContainerManager().GetPodContainerName(pod)
			return path
		},
	}
}
