//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// callPodResources connects to the PodResources API for one call.
func callPodResources[R any](
	ctx context.Context, call func(podresourcesapi.PodResourcesListerClient) (*R, error),
) (*R, error) {
	socket := filepath.Join(node.Layout().KubeletRoot(), "pod-resources", "kubelet.sock")
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	return call(podresourcesapi.NewPodResourcesListerClient(connection))
}

// listedPod returns the entry of a pod in the list of the PodResources API.
func (s *space) listedPod(ctx context.Context, pod string) (*podresourcesapi.PodResources, error) {
	type client = podresourcesapi.PodResourcesListerClient
	list, err := callPodResources(ctx, func(api client) (*podresourcesapi.ListPodResourcesResponse, error) {
		return api.List(ctx, &podresourcesapi.ListPodResourcesRequest{})
	})
	if err != nil {
		return nil, err
	}
	for _, entry := range list.PodResources {
		if entry.Namespace == s.name && entry.Name == pod {
			return entry, nil
		}
	}
	return nil, fmt.Errorf("PodResources lists %d pods, but not %s", len(list.PodResources), pod)
}

// podResources returns the resources of the first container of a pod, from the PodResources API.
func (s *space) podResources(ctx context.Context, pod string) (*podresourcesapi.ContainerResources, error) {
	entry, err := s.listedPod(ctx, pod)
	if err != nil {
		return nil, err
	}
	if len(entry.Containers) == 0 {
		return nil, fmt.Errorf("PodResources lists %s without containers", pod)
	}
	return entry.Containers[0], nil
}

// waitUntilListed waits until a kubelet that was restarted has received the pod.
func (s *space) waitUntilListed(pod string) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		_, err := s.listedPod(ctx, pod)
		return err
	})
}

// podResourcesOf returns the entry of a pod from the get request of the PodResources API.
func (s *space) podResourcesOf(pod string) (*podresourcesapi.PodResources, error) {
	type client = podresourcesapi.PodResourcesListerClient
	response, err := callPodResources(s.ctx, func(api client) (*podresourcesapi.GetPodResourcesResponse, error) {
		return api.Get(s.ctx, &podresourcesapi.GetPodResourcesRequest{PodNamespace: s.name, PodName: pod})
	})
	return response.GetPodResources(), err
}

// TestPodResources checks the PodResources API: a pod with an exclusive CPU, memory and a device, one with nothing of
// that, one that has ended, and what is allocatable.
func TestPodResources(t *testing.T) {
	s := spaceForRestart(t)
	s.withPolicies(staticPolicies)
	s.startDevicePlugin("left", "right")
	s.allocatableDevices(2)
	owner := podWithDevice("owner")
	owner.Spec.Containers[0].Resources.Limits[v1.ResourceCPU] = kit.Resources("1", "32Mi")[v1.ResourceCPU]
	owner.Spec.Containers[0].Resources.Limits[v1.ResourceMemory] = kit.Resources("1", "32Mi")[v1.ResourceMemory]
	owner = s.ready(owner)
	s.ready(kit.IdlePod("plain"))
	done := s.succeeded(kit.Pod("done", "true"))

	s.hasDevice("owner", s.sh(owner, "echo $DEVICES"))
	s.ownsMemory("owner", 32<<20)
	var cpu int64
	if _, err := fmt.Sscan(s.cpusOf(owner), &cpu); err != nil {
		t.Fatalf("the pod may use the CPUs %s: %v", s.cpusOf(owner), err)
	}
	s.ownsCPU("owner", cpu)
	for _, name := range []string{"owner", "plain"} {
		s.listAndGetAgree(name)
	}
	s.hasNoResources("plain")
	s.eventually(podTimeout, func(ctx context.Context) error {
		if _, err := s.listedPod(ctx, done.Name); err == nil {
			return errors.New("a pod that has ended is still listed")
		}
		return nil
	})
	if _, err := s.podResourcesOf("missing"); status.Code(err) != codes.Unknown {
		t.Errorf("getting a pod that does not exist returned %v", err)
	}
	s.allocatableResources(cpu)
}

// listAndGetAgree compares the entries of a pod in the responses of list and get.
func (s *space) listAndGetAgree(pod string) {
	s.t.Helper()
	listed, err := s.listedPod(s.ctx, pod)
	s.must(err)
	gotten, err := s.podResourcesOf(pod)
	s.must(err)
	if !proto.Equal(listed, gotten) {
		s.t.Errorf("list returns %s as %v, get as %v", pod, listed, gotten)
	}
}

func (s *space) hasNoResources(pod string) {
	s.t.Helper()
	got, err := s.podResources(s.ctx, pod)
	s.must(err)
	if len(got.CpuIds)+len(got.Devices)+len(got.Memory)+len(got.DynamicResources) > 0 {
		s.t.Errorf("a pod without requests has %v", got)
	}
}

// offers checks the allocatable resources: the CPU among those that are not reserved, all memory that is not reserved,
// both devices.
func (s *space) allocatableResources(cpu int64) {
	s.t.Helper()
	type client = podresourcesapi.PodResourcesListerClient
	all, err := callPodResources(s.ctx, func(api client) (*podresourcesapi.AllocatableResourcesResponse, error) {
		return api.GetAllocatableResources(s.ctx, &podresourcesapi.AllocatableResourcesRequest{})
	})
	s.must(err)
	if !slices.Contains(all.CpuIds, cpu) || slices.Contains(all.CpuIds, 0) {
		s.t.Errorf("the CPUs %v are allocatable, want %d among them and not 0, which is reserved", all.CpuIds, cpu)
	}
	var devices []string
	for _, entry := range all.Devices {
		if entry.ResourceName == string(deviceResource) {
			devices = append(devices, entry.DeviceIds...)
		}
	}
	slices.Sort(devices)
	if !slices.Equal(devices, []string{"left", "right"}) {
		s.t.Errorf("the devices %v are allocatable, want both", devices)
	}
	var memory uint64
	for _, block := range all.Memory {
		if block.MemoryType == string(v1.ResourceMemory) {
			memory += block.Size
		}
	}
	if want := s.allocatableMemory(); memory != want {
		s.t.Errorf("%d bytes of memory are allocatable, want %d", memory, want)
	}
}
