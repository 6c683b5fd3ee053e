package topology_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/clock"
	"k8s.io/utils/cpuset"

	"github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/topology"
)

var _ topology.Managers = cm.ContainerManager(nil)

// stock has stock's managers of CPUs, memory and topology, under their static policies, and no devices. Its answers
// have the form of stock's container manager.
type stock struct {
	cpus     cpumanager.Manager
	memory   memorymanager.Manager
	topology topologymanager.Manager
	pods     []*v1.Pod
}

// newStock reserves a CPU and 1 GiB of the memory of the first NUMA node.
func newStock(t *testing.T, info *cadvisorapi.MachineInfo, policy, scope string) *stock {
	t.Helper()
	logger, ctx := klog.Background(), context.Background()
	tm, err := topologymanager.NewManager(info.Topology, policy, scope, nil)
	if err != nil {
		t.Fatal(err)
	}
	reserved := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")}
	cpus, err := cpumanager.NewManager(logger, "static", nil, time.Hour, info, cpuset.New(), reserved, t.TempDir(), tm)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := memorymanager.NewManager(logger, "Static", info, reserved, []kubeletconfig.MemoryReservation{
		{NumaNode: 0, Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Gi")}},
	}, t.TempDir(), tm)
	if err != nil {
		t.Fatal(err)
	}
	s := &stock{cpus: cpus, memory: memory, topology: tm}
	tm.AddHintProvider(logger, cpus)
	tm.AddHintProvider(logger, memory)
	// Sources that are never ready keep the managers from taking pods for ended ones.
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return false })
	none := func() []*v1.Pod { return nil }
	if err := cpus.Start(ctx, none, ready, noStatus{}, noRuntime{}, containermap.NewContainerMap()); err != nil {
		t.Fatal(err)
	}
	if err := memory.Start(ctx, none, ready, noStatus{}, noRuntime{}, containermap.NewContainerMap()); err != nil {
		t.Fatal(err)
	}
	return s
}

type noStatus struct{}

func (noStatus) GetPodStatus(types.UID) (v1.PodStatus, bool) { return v1.PodStatus{}, false }

type noRuntime struct{}

func (noRuntime) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

func (s *stock) GetCPUs(uid, container string) (list []int64) {
	return numbers(s.cpus.GetExclusiveCPUs(uid, container))
}

func (s *stock) GetAllocatableCPUs() []int64 { return numbers(s.cpus.GetAllocatableCPUs()) }

func numbers(set cpuset.CPUSet) (list []int64) {
	for _, cpu := range set.UnsortedList() {
		list = append(list, int64(cpu))
	}
	return list
}

func (s *stock) GetMemory(uid, container string) (list []*podresourcesapi.ContainerMemory) {
	for _, b := range s.memory.GetMemory(uid, container) {
		list = append(list, memoryOn(string(b.Type), b.Size, ids(b.NUMAAffinity)...))
	}
	return list
}

func (s *stock) GetAllocatableMemory() (list []*podresourcesapi.ContainerMemory) {
	for _, b := range s.memory.GetAllocatableMemory() {
		list = append(list, memoryOn(string(b.Type), b.Size, ids(b.NUMAAffinity)...))
	}
	return list
}

func ids(nodes []int) (list []int64) {
	for _, n := range nodes {
		list = append(list, int64(n))
	}
	return list
}

func (*stock) GetDevices(string, string) []*podresourcesapi.ContainerDevices { return nil }
func (*stock) GetAllocatableDevices() []*podresourcesapi.ContainerDevices    { return nil }

// admit admits a guaranteed pod with the CPUs and memory of each of its containers, and returns whether that succeeded.
func (s *stock) admit(name string, containers ...[2]string) bool {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "shop", name, types.UID("uid-"+name)
	for i, c := range containers {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(c[0]), v1.ResourceMemory: resource.MustParse(c[1])}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
			Name: fmt.Sprintf("c%d", i), Resources: v1.ResourceRequirements{Requests: list, Limits: list},
		})
	}
	if !s.topology.Admit(&lifecycle.PodAdmitAttributes{Pod: pod}).Admit {
		return false
	}
	s.pods = append(s.pods, pod)
	return true
}

// numaZones returns what a consumer has of each NUMA node.
func numaZones(t *testing.T, s *stock, info *cadvisorapi.MachineInfo, consumer string) map[string]v1.ResourceList {
	t.Helper()
	reported := poll(t, topology.New(topology.Config{
		Managers: s, Ready: func() bool { return true }, OnlyNUMABound: func() bool { return false },
		MachineInfo: func() (*cadvisorapi.MachineInfo, error) { return info, nil },
		Pods:        func() []*v1.Pod { return s.pods }, Clock: clock.RealClock{},
	}))
	found := map[string]v1.ResourceList{}
	var visit func([]v1alpha1.TopologyZone)
	visit = func(zones []v1alpha1.TopologyZone) {
		for _, z := range zones {
			visit(z.Children)
			used := v1.ResourceList{}
			for _, a := range z.Allocations {
				if a.Consumer == consumer {
					found[z.Name] = *a.Requests
				}
				for name, q := range *a.Requests {
					sum := used[name]
					sum.Add(q)
					used[name] = sum
				}
			}
			for name, q := range used {
				if can := (*z.Resources.Allocatable)[name]; q.Cmp(can) > 0 {
					t.Errorf("%s %s: %s of %s are used, %s can be allocated", z.Type, z.Name, q.String(), name, can.String())
				}
			}
		}
	}
	visit(reported.TopologyZone)
	return found
}

// With stock's managers under single-numa-node, a pod has all that it requests of one NUMA node, until it has ended. Of
// CPUs and memory that are allocatable there is as much as the machine has without what is reserved.
func TestStockManagersOneNUMANode(t *testing.T) {
	for _, name := range machines[1:] {
		info := machine(t, name)
		s := newStock(t, info, "single-numa-node", "container")
		for i := range 4 {
			pod := fmt.Sprintf("pod-%d", i)
			if !s.admit(pod, [2]string{"3", "2Gi"}) {
				t.Fatalf("%s: %s is not admitted", name, pod)
			}
		}
		seen := map[string]bool{}
		for _, pod := range s.pods {
			zones := numaZones(t, s, info, "shop/"+pod.Name+"/"+string(pod.UID))
			if len(zones) != 1 {
				t.Errorf("%s: %s has %v", name, pod.Name, zones)
			}
			for id, list := range zones {
				seen[id] = true
				if list.Cpu().String() != "3" || list.Memory().String() != "2Gi" {
					t.Errorf("%s: %s has %v of NUMA node %s", name, pod.Name, list, id)
				}
			}
		}
		if len(seen) < 2 {
			t.Errorf("%s: all pods are on one NUMA node", name)
		}
		ended := s.pods[0]
		s.pods = s.pods[1:]
		if zones := numaZones(t, s, info, "shop/"+ended.Name+"/"+string(ended.UID)); len(zones) > 0 {
			t.Errorf("%s: the pod that has ended has %v", name, zones)
		}
	}
}

// A pod that is larger than a NUMA node has what it requests of all its NUMA nodes together.
func TestStockManagersManyNUMANodes(t *testing.T) {
	for _, name := range machines[1:] {
		info := machine(t, name)
		s := newStock(t, info, "best-effort", "pod")
		cpus, memory := info.NumCores-3, (info.Topology[0].Memory+info.Topology[1].Memory)*9/10
		if !s.admit("great", [2]string{fmt.Sprint(cpus), fmt.Sprint(memory)}, [2]string{"1", "64Mi"}) {
			t.Fatalf("%s: the pod is not admitted", name)
		}
		zones := numaZones(t, s, info, "shop/great/uid-great")
		if len(zones) < 2 {
			t.Errorf("%s: the pod has %v", name, zones)
		}
		var gotCPUs, gotMemory int64
		for _, list := range zones {
			gotCPUs += list.Cpu().Value()
			gotMemory += list.Memory().Value()
		}
		if want := int64(cpus) + 1; gotCPUs != want {
			t.Errorf("%s: the pod has %d CPUs, want %d", name, gotCPUs, want)
		}
		if want := int64(memory + 64*mi); gotMemory != want {
			t.Errorf("%s: the pod has %d bytes, want %d", name, gotMemory, want)
		}
	}
}
