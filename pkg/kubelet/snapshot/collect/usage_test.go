package collect

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func fsStats(bytes, inodes int64) *statsapi.FsStats {
	return &statsapi.FsStats{UsedBytes: number(uint64(bytes)), InodesUsed: number(uint64(inodes))}
}

// reportedPods are a pod about which everything is reported, one with numbers that cannot be right, and one without
// any.
func reportedPods() []statsapi.PodStats {
	absurd := uint64(math.MaxUint64)
	return []statsapi.PodStats{
		{
			Memory: &statsapi.MemoryStats{
				Time: metav1.Unix(7, 0), WorkingSetBytes: number(1), RSSBytes: number(2), UsageBytes: number(99),
				AvailableBytes: number(99),
			},
			ProcessStats: &statsapi.ProcessStats{ProcessCount: number(3)}, EphemeralStorage: fsStats(4, 99),
			Containers: []statsapi.ContainerStats{
				{Name: "a", Memory: &statsapi.MemoryStats{WorkingSetBytes: number(5)}, Rootfs: fsStats(6, 7), Logs: fsStats(8, 9)},
				{Name: "b"},
			},
			VolumeStats: []statsapi.VolumeStats{{Name: "v", FsStats: *fsStats(10, 11)}, {Name: "v"}},
		},
		{
			Memory:       &statsapi.MemoryStats{WorkingSetBytes: &absurd, RSSBytes: &absurd},
			ProcessStats: &statsapi.ProcessStats{ProcessCount: &absurd}, EphemeralStorage: &statsapi.FsStats{UsedBytes: &absurd},
			Containers: []statsapi.ContainerStats{{Name: "a", Logs: &statsapi.FsStats{UsedBytes: &absurd, InodesUsed: &absurd}}},
		},
		{},
	}
}

func TestUsagesOf(t *testing.T) {
	const unknown = snapshot.Unknown
	fs := func(bytes snapshot.Bytes, inodes snapshot.Inodes) snapshot.FsUsage {
		return snapshot.FsUsage{Bytes: bytes, Inodes: inodes}
	}
	no := fs(unknown, unknown)
	want := []snapshot.Usage{
		{
			Memory: 1, AnonymousMemory: 2, MemoryDate: 7e9, PIDs: 3, LocalStorage: 4,
			Containers: []snapshot.ContainerUsage{
				{Name: "a", Memory: 5, WritableLayer: fs(6, 7), Logs: fs(8, 9)},
				{Name: "b", Memory: unknown, WritableLayer: no, Logs: no},
			},
			Volumes: []snapshot.VolumeUsage{{Name: "v", FsUsage: fs(10, 11)}, {Name: "v", FsUsage: no}},
		},
		{
			Memory: unknown, AnonymousMemory: unknown, PIDs: unknown, LocalStorage: unknown,
			Containers: []snapshot.ContainerUsage{{Name: "a", Memory: unknown, WritableLayer: no, Logs: no}},
			Volumes:    []snapshot.VolumeUsage{},
		},
		{
			Memory: unknown, AnonymousMemory: unknown, PIDs: unknown, LocalStorage: unknown,
			Containers: []snapshot.ContainerUsage{}, Volumes: []snapshot.VolumeUsage{},
		},
	}
	if diff := cmp.Diff(want, usagesOf(reportedPods())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPodStatsOfOnePod: the stats of a pod that are converted alone are the same as with all.
func TestPodStatsOfOnePod(t *testing.T) {
	s := podStats(reportedPods())
	all := s.Usages(0, s.Len())
	for i := range all {
		if diff := cmp.Diff(all[i:i+1], s.Usages(i, i+1)); diff != "" {
			t.Errorf("pod %d (-with all +alone):\n%s", i, diff)
		}
	}
}
