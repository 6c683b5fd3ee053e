package collect

import (
	"errors"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func number(n uint64) *uint64 { return &n }

func fullSummary(at metav1.Time) *statsapi.Summary {
	pids, running := int64(100), int64(30)
	fs := func(base uint64) *statsapi.FsStats {
		return &statsapi.FsStats{Time: at, AvailableBytes: number(base), CapacityBytes: number(10 * base),
			InodesFree: number(base + 1), Inodes: number(base + 2)}
	}
	return &statsapi.Summary{Node: statsapi.NodeStats{
		Memory: &statsapi.MemoryStats{Time: at, AvailableBytes: number(40), WorkingSetBytes: number(60)},
		SystemContainers: []statsapi.ContainerStats{{Name: "kubelet"},
			{Name: "pods", Memory: &statsapi.MemoryStats{Time: at, AvailableBytes: number(4), WorkingSetBytes: number(6)}}},
		Fs:      fs(1000),
		Runtime: &statsapi.RuntimeStats{ImageFs: fs(2000), ContainerFs: fs(3000)},
		Rlimit:  &statsapi.RlimitStats{Time: at, MaxPID: &pids, NumOfRunningProcesses: &running},
	}}
}

func TestFromSummary(t *testing.T) {
	at := metav1.NewTime(time.Unix(5, 0))
	got := FromSummary(fullSummary(at))
	want := map[snapshot.Signal][2]int64{
		snapshot.MemoryAvailable: {40, 100}, snapshot.AllocatableMemoryAvailable: {4, 10}, snapshot.PIDAvailable: {70, 100},
		snapshot.NodeFsAvailable: {1000, 10000}, snapshot.NodeFsInodesFree: {1001, 1002},
		snapshot.ImageFsAvailable:     {2000, 20000},
		snapshot.ImageFsInodesFree:    {2001, 2002},
		snapshot.ContainerFsAvailable: {3000, 30000}, snapshot.ContainerFsInodesFree: {3001, 3002},
	}
	for _, sig := range snapshot.AllSignals() {
		w := snapshot.Observation{Available: want[sig][0], Capacity: want[sig][1], At: snapshot.WallTime(at.Time)}
		if got[sig] != w {
			t.Errorf("%s: %+v, want %+v", sig, got[sig], w)
		}
	}
}

// TestMissingPartsConcernTheirOwnSignals takes one part away at a time (D10).
func TestMissingPartsConcernTheirOwnSignals(t *testing.T) {
	tests := map[string]struct {
		take func(*statsapi.NodeStats)
		lost []snapshot.Signal
	}{
		"memory": {func(n *statsapi.NodeStats) { n.Memory = nil }, []snapshot.Signal{snapshot.MemoryAvailable}},
		"available memory": {func(n *statsapi.NodeStats) { n.Memory.AvailableBytes = nil },
			[]snapshot.Signal{snapshot.MemoryAvailable}},
		"pods": {func(n *statsapi.NodeStats) { n.SystemContainers = n.SystemContainers[:1] },
			[]snapshot.Signal{snapshot.AllocatableMemoryAvailable}},
		"PIDs": {func(n *statsapi.NodeStats) { n.Rlimit.MaxPID = nil }, []snapshot.Signal{snapshot.PIDAvailable}},
		"nodefs": {func(n *statsapi.NodeStats) { n.Fs = nil },
			[]snapshot.Signal{snapshot.NodeFsAvailable, snapshot.NodeFsInodesFree}},
		"nodefs inodes": {func(n *statsapi.NodeStats) { n.Fs.Inodes = nil }, []snapshot.Signal{snapshot.NodeFsInodesFree}},
		"runtime": {func(n *statsapi.NodeStats) { n.Runtime = nil },
			imageSignals},
		"imagefs": {func(n *statsapi.NodeStats) { n.Runtime.ImageFs = nil },
			[]snapshot.Signal{snapshot.ImageFsAvailable, snapshot.ImageFsInodesFree}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			summary := fullSummary(metav1.Time{})
			test.take(&summary.Node)
			var lost []snapshot.Signal
			for sig, o := range FromSummary(summary) {
				if snapshot.Signal(sig) != snapshot.NoSignal && !o.Known() {
					lost = append(lost, snapshot.Signal(sig))
				}
			}
			if !reflect.DeepEqual(lost, test.lost) {
				t.Errorf("lost %v, want %v", lost, test.lost)
			}
		})
	}
}

func TestUsageAboveTheLimitIsNegative(t *testing.T) {
	limit, used := uint64(100), uint64(130)
	o := memoryObservation(&statsapi.MemoryStats{AvailableBytes: number(limit - used), WorkingSetBytes: number(used)})
	if o.Available != -30 || o.Capacity != 100 {
		t.Errorf("%+v", o)
	}
	if o := observation(5, -1, time.Time{}); !errors.Is(o.Err, snapshot.ErrImplausible) {
		t.Errorf("%+v", o)
	}
}
