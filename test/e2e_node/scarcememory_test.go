//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// scarceMemory is by how much more memory all pods together may use than usual, in MiB.
	scarceMemory = 11 << 10
	// scarceTurns is how often each kubelet is measured.
	scarceTurns = 2
)

// BenchmarkScarceMemory measures the CPU time and the allocations of the kubelet of a node with 110 pods that do
// nothing, while memory is 10 GiB, 1 GiB, 100 MiB and 10 MiB above the eviction threshold: ours, which reads the memory
// counters the more often the less is left, and stock's in turn. One operation is a period of 5 s:
//
//	go test -tags e2e -run '^$' -bench ScarceMemory -benchtime 8x -timeout 1h ./test/e2e_node
func BenchmarkScarceMemory(b *testing.B) {
	s := newSpace(b)
	s.must(builder.Build(s.ctx, []build.Part{build.StockKubelet()}))
	own, stock := node.Kubelet(), node.Layout().Program(build.StockKubelet().Name)
	b.Cleanup(func() { node.SetKubelet(own) })
	s.restartKubelet(muchMemory)
	s.startMany(idlePods - 1)
	for range scarceTurns {
		for _, kubelet := range []string{own, stock} {
			s.must(node.StopKubelet(s.ctx))
			node.SetKubelet(kubelet)
			s.must(node.StartKubelet(s.ctx, muchMemory))
			for _, left := range []int64{10 << 10, 1 << 10, 100, 10} {
				s.leaveMemory(left)
				b.Run(fmt.Sprintf("stock=%t/left=%dMi", kubelet == stock, left), func(b *testing.B) {
					s.in(b).scarceCost(b, kubelet == own)
				})
				s.must(kit.Ready(s.get("filler")))
				s.remove(s.get("filler"))
			}
		}
	}
}

func muchMemory(config *kubeletv1beta1.KubeletConfiguration) {
	littleHeadroom(config)
	reserved := resource.MustParse(config.SystemReserved["memory"])
	reserved.Sub(*resource.NewQuantity(scarceMemory<<20, resource.BinarySI))
	config.SystemReserved["memory"] = reserved.String()
}

// leaveMemory starts a pod that uses all memory of pods but so many MiB above the threshold.
func (s *space) leaveMemory(left int64) {
	s.t.Helper()
	memory, err := kit.FindCgroupMemory(node.PodsCgroup())
	s.must(err)
	available, err := memory.Available()
	s.must(err)
	use := available/mebibyte - fencedHeadroom - left
	s.ready(kit.Bound(holding("filler", use-use/pagesPerTable)))
	s.eventually(slowTimeout, func(context.Context) error {
		available, err := memory.Available()
		if above := available/mebibyte - fencedHeadroom; err == nil && above > left+left/10+2 {
			err = fmt.Errorf("%d MiB are left above the threshold, want %d", above, left)
		}
		return err
	})
}

// scarceCost reports what the kubelet uses in b.N periods: of a core in all and for reads of the memory counters, and
// allocations. Its metrics are read once before and once after, since that costs as much as some seconds do.
func (s *space) scarceCost(b *testing.B, ours bool) {
	const processor = "process_cpu_seconds_total"
	units := map[string]string{
		processor: "cores", "go_memstats_mallocs_total": "allocs/s", "go_memstats_alloc_bytes_total": "B/s",
	}
	if ours {
		units["plimsoll_eviction_memory_reads_total"] = "reads/s"
		units["plimsoll_eviction_memory_reads_cpu_seconds_total"] = "core-for-reads"
	}
	series := slices.Sorted(maps.Keys(units))
	tick := time.NewTicker(idlePeriod)
	defer tick.Stop()
	<-tick.C
	before, err := s.metrics(s.ctx, series...)
	s.must(err)
	began := time.Now()
	for b.Loop() {
		<-tick.C
	}
	after, err := s.metrics(s.ctx, series...)
	s.must(err)
	seconds := time.Since(began).Seconds()
	for name, unit := range units {
		b.ReportMetric((after[name]-before[name])/seconds, unit)
	}
}
