package kubelet

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/fence"
)

// memoryLimits are pod cgroups with one limit of memory.
type memoryLimits int64

func (m memoryLimits) GetPodCgroupConfig(_ *v1.Pod, name v1.ResourceName) (*cm.ResourceConfig, error) {
	shares, limit := uint64(2), int64(m)
	if name == v1.ResourceMemory {
		return &cm.ResourceConfig{Memory: &limit}, nil
	}
	return &cm.ResourceConfig{CPUShares: &shares}, nil
}

// The limit of a fence is not one of the pod: its status keeps the earlier one.
func TestStatusDoesNotShowTheFence(t *testing.T) {
	const fenced, round = 307 * 4096, 300 << 20
	if !fence.IsFence(fenced) || fence.IsFence(round) {
		t.Fatal("the test does not know what a fence is")
	}
	for _, test := range []struct {
		limit       int64
		terminating bool
		shown       bool
	}{
		{limit: fenced, terminating: true},
		{limit: fenced, shown: true}, // by chance
		{limit: round, terminating: true, shown: true},
	} {
		c := unfencedCgroups{memoryLimits(test.limit), func(types.UID) bool { return test.terminating }}
		memory, err := c.GetPodCgroupConfig(&v1.Pod{}, v1.ResourceMemory)
		if got := cm.MemoryLimitsFromConfig(memory); err != nil || (got != nil) != test.shown {
			t.Errorf("%+v: %v, %v", test, got, err)
		}
		cpu, err := c.GetPodCgroupConfig(&v1.Pod{}, v1.ResourceCPU)
		if err != nil || cpu == nil || cpu.CPUShares == nil {
			t.Errorf("%+v: CPU %v, %v", test, cpu, err)
		}
	}
}

// The limits without a fence are those with which the container manager creates the cgroup.
func TestLimitsWithoutAFence(t *testing.T) {
	f := &podFences{pidsLimit: 100}
	pod := func(limits ...string) *v1.Pod {
		p := &v1.Pod{}
		for _, limit := range limits {
			c := v1.Container{}
			if limit != "" {
				c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit)}
				c.Resources.Requests = c.Resources.Limits
			}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		return p
	}
	for _, test := range []struct {
		pod  *v1.Pod
		want int64
	}{
		{pod("100Mi", "50Mi"), 150 << 20},
		{pod("100Mi", ""), 0},
		{pod(""), 0},
	} {
		if got, want := f.expected(test.pod), (fence.Expected{Memory: test.want, PIDs: 100}); got != want {
			t.Errorf("limits %+v, want %+v", got, want)
		}
	}
}
