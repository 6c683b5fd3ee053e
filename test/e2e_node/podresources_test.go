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

// askPodResources connects to the PodResources API for one question.
func askPodResources[A any](ctx context.Context, question func(podresourcesapi.PodResourcesListerClient) (A, error)) (A, error) {
	socket := filepath.Join(node.Layout().KubeletRoot(), "pod-resources", "kubelet.sock")
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		var none A
		return none, err
	}
	defer connection.Close()
	return question(podresourcesapi.NewPodResourcesListerClient(connection))
}

// listedPod is what the list of the PodResources API says about a pod.
func (s *space) listedPod(ctx context.Context, pod string) (*podresourcesapi.PodResources, error) {
	list, err := askPodResources(ctx, func(api podresourcesapi.PodResourcesListerClient) (*podresourcesapi.ListPodResourcesResponse, error) {
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

// podResources is what the PodResources API tells of the container called main of a pod.
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

// knows waits until the kubelet, which was started anew, has been told of the pod.
func (s *space) knows(pod string) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		_, err := s.listedPod(ctx, pod)
		return err
	})
}

// gottenPod is what the PodResources API says about a pod when asked for that one.
func (s *space) gottenPod(pod string) (*podresourcesapi.PodResources, error) {
	answer, err := askPodResources(s.ctx, func(api podresourcesapi.PodResourcesListerClient) (*podresourcesapi.GetPodResourcesResponse, error) {
		return api.Get(s.ctx, &podresourcesapi.GetPodResourcesRequest{PodNamespace: s.name, PodName: pod})
	})
	return answer.GetPodResources(), err
}

// TestPodResources asks the kubelet who has what: a pod with a CPU, memory and a device of its own, one that has nothing of that, one
// that has ended, and what there is to have.
func TestPodResources(t *testing.T) {
	s := newSpace(t)
	s.withPolicies(pinned)
	s.startDevicePlugin("left", "right")
	s.things(2)
	owner := podWithThing("owner")
	owner.Spec.Containers[0].Resources.Limits[v1.ResourceCPU] = kit.Resources("1", "32Mi")[v1.ResourceCPU]
	owner.Spec.Containers[0].Resources.Limits[v1.ResourceMemory] = kit.Resources("1", "32Mi")[v1.ResourceMemory]
	owner = s.ready(owner)
	s.ready(kit.IdlePod("plain"))
	done := s.succeeded(kit.Pod("done", "true"))

	s.holds("owner", s.sh(owner, "echo $THINGS"))
	s.ownsMemory("owner", 32<<20)
	var cpu int64
	if _, err := fmt.Sscan(s.cpusOf(owner), &cpu); err != nil {
		t.Fatalf("the pod may use the CPUs %s: %v", s.cpusOf(owner), err)
	}
	s.ownsCPU("owner", cpu)
	for _, name := range []string{"owner", "plain"} {
		s.sameWhenAskedFor(name)
	}
	s.hasNothing("plain")
	s.eventually(podTimeout, func(ctx context.Context) error {
		if _, err := s.listedPod(ctx, done.Name); err == nil {
			return errors.New("a pod that has ended is still listed")
		}
		return nil
	})
	if _, err := s.gottenPod("nobody"); status.Code(err) != codes.Unknown {
		t.Errorf("a pod that is not there: %v", err)
	}
	s.offers(cpu)
}

// sameWhenAskedFor compares the two ways to ask for a pod.
func (s *space) sameWhenAskedFor(pod string) {
	s.t.Helper()
	listed, err := s.listedPod(s.ctx, pod)
	s.must(err)
	gotten, err := s.gottenPod(pod)
	s.must(err)
	if !proto.Equal(listed, gotten) {
		s.t.Errorf("%s is listed as %v, but when asked for it is %v", pod, listed, gotten)
	}
}

func (s *space) hasNothing(pod string) {
	s.t.Helper()
	got, err := s.podResources(s.ctx, pod)
	s.must(err)
	if len(got.CpuIds)+len(got.Devices)+len(got.Memory)+len(got.DynamicResources) > 0 {
		s.t.Errorf("a pod that asks for nothing has %v", got)
	}
}

// offers checks what the kubelet says that can be had: CPU, and any that is not reserved; all memory that is not; both devices.
func (s *space) offers(cpu int64) {
	s.t.Helper()
	all, err := askPodResources(s.ctx, func(api podresourcesapi.PodResourcesListerClient) (*podresourcesapi.AllocatableResourcesResponse, error) {
		return api.GetAllocatableResources(s.ctx, &podresourcesapi.AllocatableResourcesRequest{})
	})
	s.must(err)
	if !slices.Contains(all.CpuIds, cpu) || slices.Contains(all.CpuIds, 0) {
		s.t.Errorf("the CPUs %v can be had, want %d among them and not 0, which is reserved", all.CpuIds, cpu)
	}
	var devices []string
	for _, entry := range all.Devices {
		if entry.ResourceName == string(thing) {
			devices = append(devices, entry.DeviceIds...)
		}
	}
	slices.Sort(devices)
	if !slices.Equal(devices, []string{"left", "right"}) {
		s.t.Errorf("the devices %v can be had, want both", devices)
	}
	var memory uint64
	for _, block := range all.Memory {
		if block.MemoryType == string(v1.ResourceMemory) {
			memory += block.Size
		}
	}
	if want := s.memoryToHave(); memory != want {
		s.t.Errorf("%d bytes of memory can be had, want %d", memory, want)
	}
}
