package generator

import (
	"context"
	"sync"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/kuberuntime"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

func (g *Generator) lookups(ctx context.Context, pod *v1.Pod) podstatus.Lookups {
	l := podstatus.Lookups{
		StartError: func(container string) (*podstatus.Reason, bool) { return g.cfg.Reasons.Get(pod.UID, container) },
	}
	if g.cfg.Images != nil {
		l.ImageRef = func(image *runtimeapi.ImageSpec) (string, error) { return g.imageRef(ctx, image) }
	}
	if g.cfg.PodCgroups != nil {
		l.PodCgroup = func() podstatus.CgroupResources { return g.podCgroup(ctx, pod) }
	}
	if g.cfg.OOMVictims != nil {
		spared := sync.OnceValue(func() func(string) bool { return g.cfg.OOMVictims(pod) })
		l.SparedByOOM = func(id string) bool { return spared()(id) }
	}
	if g.cfg.Probes != nil {
		l.Probes = func(status *v1.PodStatus) { g.cfg.Probes.UpdatePodStatus(ctx, pod, status) }
	}
	if g.cfg.Devices != nil && g.cfg.Features.ResourceHealthStatus {
		l.Devices = func(status *v1.PodStatus) { g.cfg.Devices.UpdateAllocatedResourcesStatus(pod, status) }
	}
	return l
}

func (g *Generator) imageRef(ctx context.Context, image *runtimeapi.ImageSpec) (string, error) {
	spec := kuberuntime.ToKubeContainerImageSpec(&runtimeapi.Image{Id: image.Image, Spec: image})
	return g.cfg.Images.GetImageRef(ctx, spec)
}

// podCgroup reads the pod's cgroup. A value that cannot be read is nil; the value of the previous status is then kept.
func (g *Generator) podCgroup(ctx context.Context, pod *v1.Pod) podstatus.CgroupResources {
	cgroups := g.cfg.PodCgroups()
	read := func(name v1.ResourceName) *cm.ResourceConfig {
		config, err := cgroups.GetPodCgroupConfig(pod, name)
		if err != nil {
			klog.FromContext(ctx).Error(err, "Failed to read the pod's cgroup configuration", "pod", klog.KObj(pod),
				"resource", name)
			return nil
		}
		return config
	}
	memory, cpu := read(v1.ResourceMemory), read(v1.ResourceCPU)
	return podstatus.CgroupResources{
		CPURequest:  cm.CPURequestsFromConfig(cpu),
		CPULimit:    cm.CPULimitsFromConfig(cpu),
		MemoryLimit: cm.MemoryLimitsFromConfig(memory),
	}
}
