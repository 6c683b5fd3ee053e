package podstatus_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/utils/ptr"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podstatus"
)

func list(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}

func quantity(s string) *resource.Quantity { return ptr.To(resource.MustParse(s)) }

// TestResize resizes a container from 100m to 200m: the allocation changes first, the enforced quantity later.
func TestResize(t *testing.T) {
	c := container("a")
	c.Resources = v1.ResourceRequirements{Requests: list("100m", "64Mi"), Limits: list("100m", "64Mi")}
	p := pod(c)
	n := newSequence(t, p)
	enforce := func(cpu string) *kubecontainer.Status {
		r := running("a")
		r.Resources = &kubecontainer.ContainerResources{
			CPURequest: quantity(cpu), CPULimit: quantity(cpu), MemoryLimit: quantity("64Mi"),
		}
		return r
	}
	want := func(s v1.PodStatus, allocated, actual string) {
		t.Helper()
		got := s.ContainerStatuses[0]
		if !got.AllocatedResources.Cpu().Equal(resource.MustParse(allocated)) ||
			!got.Resources.Requests.Cpu().Equal(resource.MustParse(actual)) ||
			!got.Resources.Limits.Cpu().Equal(resource.MustParse(actual)) {
			t.Errorf("allocated %v, resources %+v; want %s and %s", got.AllocatedResources, got.Resources, allocated, actual)
		}
	}
	want(n.next(runtime(enforce("100m"))), "100m", "100m")
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list("200m", "64Mi"), Limits: list("200m", "64Mi")}
	want(n.next(runtime(enforce("100m"))), "200m", "100m")
	// If the runtime reports no resources, those of the previous status stay.
	want(n.next(runtime(running("a"))), "200m", "100m")
	want(n.next(runtime(enforce("200m"))), "200m", "200m")
}

// TestMinimumCPU uses quantities that a cgroup cannot enforce.
func TestMinimumCPU(t *testing.T) {
	for _, tt := range []struct{ allocated, enforced, want string }{
		{"1m", "2m", "1m"}, {"3m", "2m", "2m"}, {"1m", "3m", "3m"}, {"0", "2m", "0"},
	} {
		c := container("a")
		c.Resources.Requests = list(tt.allocated, "1Mi")
		r := running("a")
		r.Resources = &kubecontainer.ContainerResources{CPURequest: quantity(tt.enforced)}
		got := newSequence(t, pod(c)).next(runtime(r)).ContainerStatuses[0].Resources.Requests.Cpu()
		if !got.Equal(resource.MustParse(tt.want)) {
			t.Errorf("allocated %s, enforced %s: reported %s, want %s", tt.allocated, tt.enforced, got, tt.want)
		}
	}
	if cm.MinShares != 2 || cm.MinMilliCPULimit != 10 {
		t.Error("the minimum CPU settings of stock have changed")
	}
}

func TestPodLevelResources(t *testing.T) {
	p := pod(container("a"))
	p.Spec.Resources = &v1.ResourceRequirements{Requests: list("1", "64Mi"), Limits: list("2", "128Mi")}
	n := newSequence(t, p)
	reads := 0
	n.in.Lookups.PodCgroup = func() podstatus.CgroupResources {
		reads++
		return podstatus.CgroupResources{
			CPURequest: quantity("500m"), CPULimit: quantity("1500m"), MemoryLimit: quantity("96Mi"),
		}
	}
	s := n.next(runtime())
	if reads != 0 || !equality.Semantic.DeepEqual(s.Resources, p.Spec.Resources) {
		t.Errorf("before the pod runs: %d reads, %+v", reads, s.Resources)
	}
	p.Status.Phase = v1.PodRunning
	s = n.next(runtime(running("a")))
	want := &v1.ResourceRequirements{Requests: list("500m", "64Mi"), Limits: list("1500m", "96Mi")}
	if !equality.Semantic.DeepEqual(s.Resources, want) ||
		!equality.Semantic.DeepEqual(s.AllocatedResources, list("1", "64Mi")) {
		t.Errorf("resources are %+v, allocated %v", s.Resources, s.AllocatedResources)
	}
	// If the cgroup cannot be read, the resources of the previous status stay.
	n.in.Lookups.PodCgroup = nil
	if s = n.next(runtime(running("a"))); !equality.Semantic.DeepEqual(s.Resources, want) {
		t.Errorf("resources are %+v", s.Resources)
	}
}

// TestImageVolumeOfNewestContainer: the status has the image volume of the running container; stock reports that of the
// container before.
func TestImageVolumeOfNewestContainer(t *testing.T) {
	c := container("a")
	c.VolumeMounts = []v1.VolumeMount{{Name: "image", MountPath: "/image"}}
	p := pod(c)
	p.Spec.Volumes = []v1.Volume{{Name: "image", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{}}}}
	n := newSequence(t, p)
	n.in.Features.ImageVolumeWithDigest = true
	n.in.Lookups.ImageRef = func(i *runtimeapi.ImageSpec) (string, error) { return i.Image + "@sha256:0", nil }
	mounting := func(r *kubecontainer.Status, image string) *kubecontainer.Status {
		r.Mounts = []kubecontainer.Mount{{Name: "image", Image: &runtimeapi.ImageSpec{Image: image}}}
		return r
	}
	n.next(runtime())
	first := n.next(runtime(mounting(running("a"), "old")))
	second := n.next(runtime(mounting(nth(1, running("a")), "new"), mounting(exited("a", 1), "old")))
	ref := func(s v1.PodStatus) string { return s.ContainerStatuses[0].VolumeMounts[0].VolumeStatus.Image.ImageRef }
	if ref(first) != "old@sha256:0" || ref(second) != "new@sha256:0" {
		t.Errorf("image references are %q, then %q", ref(first), ref(second))
	}
}
