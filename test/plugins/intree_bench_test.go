package plugins

import (
	"context"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/util"

	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/sources"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// BenchmarkPluginsInTheAgent is one round of all plugins of the agent but memory-growth, which reads nothing, on a node
// with 110 pods. The files are those of this machine's kernel; the cgroup of each pod is the root, whose files take
// longer to read than those of a pod. One round is made each five seconds; the metric is the share of a CPU.
func BenchmarkPluginsInTheAgent(b *testing.B) {
	found, err := cm.GetCgroupSubsystems()
	if err != nil {
		b.Fatal(err)
	}
	cgroups := sources.Cgroups{
		Unified: util.IsCgroup2UnifiedMode(), Mounts: found.MountPoints, Path: func(*v1.Pod) string { return "/" },
	}
	const period = 5 * time.Second
	settings := newMachine().settings
	set, err := plugins.New(plugins.Config{
		Settings: func() plugins.Settings { return settings },
		Recorder: record.NewFakeRecorder(1000), Resident: sources.NewResident(cgroups),
		Zones: sources.NewZoneinfo("/proc/zoneinfo"), NUMAMemory: sources.NewNUMAMemory(cgroups),
		NodeMemory: sources.NewNodeMemory("/proc"), PodMemory: sources.NewPodMemory(cgroups),
		CPU:                sources.NewCPU("/proc", cgroups, "/", 2),
		Node:               func(context.Context) (*v1.Node, error) { return &v1.Node{}, nil },
		CustomNodeResource: func(context.Context) (v1.ResourceList, error) { return nil, nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	v := &plugin.View{Taken: time.Now(), Node: &eviction.Round{AllPods: true, Snapshot: &snapshot.Snapshot{
		Taken: time.Now(), Signals: snapshot.Unobserved(), Layout: snapshot.Layout{Known: true},
	}}}
	for i := range 110 {
		p := pod(fmt.Sprintf("pod-%03d", i), requests(v1.ResourceMemory, "1Ti"))
		v.Pods = append(v.Pods, p)
		v.Node.Snapshot.Pods = append(v.Node.Snapshot.Pods, snapshot.Pod{Facts: snapshot.NewFacts(p, true)})
	}
	b.ReportAllocs()
	for b.Loop() {
		next := *v
		next.Taken = next.Taken.Add(period)
		v = &next
		for _, name := range pressure.InTreePlugins() {
			if name == pressure.MemoryGrowthPlugin {
				continue
			}
			v.Node.Snapshot.Taken = v.Taken
			p := set.Plugins()[name]
			if _, err := p.EvictPods(b.Context(), v); err != nil {
				b.Fatal(name, err)
			}
			if _, err := p.ThresholdMet(b.Context(), v); err != nil {
				b.Fatal(name, err)
			}
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/period.Seconds(), "cores")
}
