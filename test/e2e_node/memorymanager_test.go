//go:build e2e

package e2enode

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// memoryState is the memory manager's checkpoint.
const memoryState = "memory_manager_state"

// numaNodes returns the directories that describe the NUMA nodes of this machine. Every machine has at least one.
func numaNodes() []string {
	nodes, _ := filepath.Glob("/sys/devices/system/node/node[0-9]*")
	slices.Sort(nodes)
	return nodes
}

// pinned gives guaranteed pods exclusive CPUs and memory of one NUMA node. The reserved memory is distributed equally
// over the NUMA nodes.
func staticPolicies(config *kubeletv1beta1.KubeletConfiguration) {
	exclusiveCPUs(config)
	config.MemoryManagerPolicy = "Static"
	config.TopologyManagerPolicy = "restricted"
	reserved, count := memoryReserved(config), int64(len(numaNodes()))
	for i := range count {
		share := reserved / count
		if i == 0 {
			share += reserved % count
		}
		config.ReservedMemory = append(config.ReservedMemory, kubeletv1beta1.MemoryReservation{
			NumaNode: int32(i), Limits: v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(share, resource.BinarySI)},
		})
	}
}

// memoryReserved returns the memory that pods may not request, in bytes: the system reservation and the eviction
// threshold.
func memoryReserved(config *kubeletv1beta1.KubeletConfiguration) int64 {
	system := resource.MustParse(config.SystemReserved["memory"])
	threshold := resource.MustParse(config.EvictionHard["memory.available"])
	return system.Value() + threshold.Value()
}

// allocatableMemory returns the memory of all NUMA nodes that is not reserved, in bytes.
func (s *space) allocatableMemory() uint64 {
	s.t.Helper()
	var all, reserved uint64
	for _, block := range s.memoryCheckpoint().MachineState {
		reserved += block.MemoryMap[v1.ResourceMemory].SystemReserved
	}
	for _, dir := range numaNodes() {
		data, err := os.ReadFile(filepath.Join(dir, "meminfo"))
		s.must(err)
		_, text, _ := strings.Cut(string(data), "MemTotal:")
		var kibibytes uint64
		_, err = fmt.Sscan(text, &kibibytes)
		s.must(err)
		all += kibibytes << 10
	}
	return all - reserved
}

// memoryBlock and memoryCheckpoint are what the tests read of the memory manager's checkpoint.
type memoryBlock struct {
	NUMAAffinity []int           `json:"numaAffinity"`
	Type         v1.ResourceName `json:"type"`
	Size         uint64          `json:"size"`
}

type memoryCheckpoint struct {
	PolicyName   string `json:"policyName"`
	MachineState map[string]struct {
		MemoryMap map[v1.ResourceName]struct {
			SystemReserved uint64 `json:"systemReserved"`
			Reserved       uint64 `json:"reserved"`
		} `json:"memoryMap"`
	} `json:"machineState"`
	// Entries are the blocks by the UID of the pod and the name of the container.
	Entries map[string]map[string][]memoryBlock `json:"entries"`
}

func (s *space) memoryCheckpoint() memoryCheckpoint {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(node.Layout().KubeletRoot(), memoryState))
	s.must(err)
	var checkpoint memoryCheckpoint
	s.must(json.Unmarshal(data, &checkpoint))
	return checkpoint
}

// ownsMemory waits until the PodResources API reports that many bytes of one NUMA node for the pod.
func (s *space) ownsMemory(pod string, bytes uint64) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := s.podResources(ctx, pod)
		if err != nil {
			return err
		}
		if len(got.Memory) != 1 || got.Memory[0].Size != bytes || got.Memory[0].MemoryType != "memory" ||
			len(got.Memory[0].GetTopology().GetNodes()) != 1 {
			return fmt.Errorf("%s has the memory %v, want %d bytes of one node", pod, got.Memory, bytes)
		}
		return nil
	})
}

// onlyOwner checks that the checkpoint has memory of that pod, and of no other.
func (s *space) onlyOwner(pod *v1.Pod, bytes uint64) {
	s.t.Helper()
	got := s.memoryCheckpoint()
	s.expect("policy of the checkpoint", got.PolicyName, "Static")
	blocks := got.Entries[string(pod.UID)]["main"]
	if len(got.Entries) != 1 || len(blocks) != 1 || blocks[0].Size != bytes || blocks[0].Type != v1.ResourceMemory ||
		len(blocks[0].NUMAAffinity) != 1 {
		s.t.Errorf("the entries of the checkpoint are %v, want %d bytes for pod %s alone", got.Entries, bytes, pod.UID)
		return
	}
	var reserved uint64
	for machine := range maps.Values(got.MachineState) {
		reserved += machine.MemoryMap[v1.ResourceMemory].Reserved
	}
	if reserved != bytes {
		s.t.Errorf("the checkpoint reserves %d bytes in all, want %d", reserved, bytes)
	}
	s.expect("NUMA nodes of the pod", s.sh(pod, "awk '/^Mems_allowed_list/ {print $2}' /proc/self/status"),
		fmt.Sprint(blocks[0].NUMAAffinity[0]))
}

// TestMemoryOfAPodSurvivesRestarts gives a pod memory of one NUMA node. The pod keeps it when the kubelet crashes or is
// replaced by the stock kubelet, and the next pod can have it when the first is deleted.
func TestMemoryOfAPodSurvivesRestarts(t *testing.T) {
	s := spaceForRestart(t)
	s.withPolicies(staticPolicies)
	owner := s.ready(guaranteed("owner"))
	s.ownsMemory("owner", 32<<20)
	s.onlyOwner(owner, 32<<20)
	s.swapKubelets(staticPolicies, func() {
		s.ownsMemory("owner", 32<<20)
		s.onlyOwner(owner, 32<<20)
	})

	s.remove(owner)
	next := guaranteed("next")
	next.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse("48Mi")
	s.onlyOwner(s.ready(next), 48<<20)
}
