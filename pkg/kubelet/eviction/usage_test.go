package eviction

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func fsStats(bytes, inodes int64) *statsapi.FsStats {
	return &statsapi.FsStats{UsedBytes: u(bytes), InodesUsed: u(inodes)}
}

// reportedPods are a pod about which everything is reported, one with numbers that cannot be right, and one without
// any.
func reportedPods() []statsapi.PodStats {
	absurd := uint64(math.MaxUint64)
	return []statsapi.PodStats{
		{
			Memory: &statsapi.MemoryStats{
				Time: metav1.Unix(7, 0), WorkingSetBytes: u(1), RSSBytes: u(2), UsageBytes: u(99), AvailableBytes: u(99),
			},
			ProcessStats: &statsapi.ProcessStats{ProcessCount: u(3)}, EphemeralStorage: fsStats(4, 99),
			Containers: []statsapi.ContainerStats{
				{Name: "a", Memory: &statsapi.MemoryStats{WorkingSetBytes: u(5)}, Rootfs: fsStats(6, 7), Logs: fsStats(8, 9)},
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

// TestPodStatsAreConvertedOnce: rounds that are made from one collection share what it was converted to. A pod that is
// converted alone is converted to the same.
func TestPodStatsAreConvertedOnce(t *testing.T) {
	s := podStats{reported: reportedPods()}
	alone := s.usage(0)
	s.convert()
	first := s.usage(0)
	s.convert()
	if s.usage(0) != first {
		t.Error("converted again")
	}
	if diff := cmp.Diff(alone, first); diff != "" {
		t.Errorf("(-alone +with all):\n%s", diff)
	}
}
