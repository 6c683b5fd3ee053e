package plugins

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/cpupressure"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/reclaimedresource"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/systemmemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// machine is what the plugins in the agent read. The zero value is a machine of which nothing can be read.
type machine struct {
	mu       sync.Mutex
	settings plugins.Settings
	// resident are the resident sets of pods in bytes.
	resident map[types.UID]int64
	// zones are NUMA nodes, nil if they are unknown; byNode is the memory of pods there, usage all of it.
	zones  []numamemory.Zone
	byNode map[types.UID]map[int]int64
	usage  map[types.UID]int64
	memory systemmemory.Node
	cpu    cpupressure.Node
	used   map[types.UID]time.Duration
	// disks are what the writable layers of pods use, free is how much of 100 GiB is on their file system.
	disks map[types.UID]snapshot.Bytes
	free  int64
	// node is nil if the Node is unknown. resource is what the CustomNodeResource has, resourceErr why that is unknown.
	node        *v1.Node
	resource    v1.ResourceList
	resourceErr error
}

// change changes what is read.
func (m *machine) change(f func(*machine)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

// Close implements plugins.Files.
func (m *machine) Close() {}

// Bytes implements plugins.Resident.
func (m *machine) Bytes(pods []*v1.Pod) (map[types.UID]int64, error) {
	return read(m, pods, m.resident), nil
}

// Zones implements plugins.Zones.
func (m *machine) Zones() ([]numamemory.Zone, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.zones == nil {
		return nil, errors.New("no such file")
	}
	return m.zones, nil
}

// ByNode implements plugins.NUMAMemory.
func (m *machine) ByNode(pods []*v1.Pod) (map[types.UID]map[int]int64, error) {
	return read(m, pods, m.byNode), nil
}

// Node implements plugins.NodeMemory.
func (m *machine) Node() (systemmemory.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory, nil
}

// Usage implements plugins.PodMemory.
func (m *machine) Usage(pods []*v1.Pod) (map[types.UID]int64, error) {
	return read(m, pods, m.usage), nil
}

// Stalls implements plugins.PodMemory.
func (m *machine) Stalls([]*v1.Pod) (map[types.UID]float64, error) { return nil, nil }

// cpus are the CPUs of a machine, all of which are busy.
type cpus struct{ *machine }

// Node implements plugins.CPU.
func (c cpus) Node() (cpupressure.Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cpu.Total != nil {
		c.cpu.Total = new(*c.cpu.Total + 100)
	}
	return c.cpu, nil
}

// Used implements plugins.CPU: pods use more each time.
func (c cpus) Used(pods []*v1.Pod) (map[types.UID]time.Duration, error) {
	c.change(func(m *machine) {
		for uid, used := range m.used {
			m.used[uid] = used * 2
		}
	})
	return read(c.machine, pods, c.used), nil
}

// stats are what the eviction manager observes.
func (m *machine) stats() snapshot.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := snapshot.Stats{Signals: snapshot.Unobserved(), Layout: snapshot.Layout{Known: true}}
	if m.disks != nil {
		s.Signals[snapshot.NodeFsAvailable] = snapshot.Observation{Available: m.free, Capacity: 100 << 30}
		s.Pods = podDisks(maps.Clone(m.disks))
	}
	return s
}

// podDisks implements snapshot.PodStats.
type podDisks map[types.UID]snapshot.Bytes

func (d podDisks) Len() int { return len(d) }

func (d podDisks) UID(i int) string { return string(slices.Sorted(maps.Keys(d))[i]) }

func (d podDisks) Usages(from, to int) (list []snapshot.Usage) {
	for i := from; i < to; i++ {
		layer := snapshot.FsUsage{Bytes: d[types.UID(d.UID(i))], Inodes: snapshot.Unknown}
		list = append(list, snapshot.Usage{Containers: []snapshot.ContainerUsage{{Name: "c", WritableLayer: layer}}})
	}
	return list
}

// read returns what is known of the pods.
func read[T any](m *machine, pods []*v1.Pod, known map[types.UID]T) map[types.UID]T {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := map[types.UID]T{}
	for _, pod := range pods {
		if value, ok := known[pod.UID]; ok {
			list[pod.UID] = value
		}
	}
	return list
}

// set returns the plugins in the agent, which read the machine.
func (m *machine) set(t testing.TB) *plugins.Set {
	t.Helper()
	set, err := plugins.New(plugins.Config{
		Settings: func() plugins.Settings { m.mu.Lock(); defer m.mu.Unlock(); return m.settings },
		Recorder: record.NewFakeRecorder(1000), Resident: m, Zones: m, NUMAMemory: m, NodeMemory: m, PodMemory: m,
		CPU: cpus{m},
		Node: func(context.Context) (*v1.Node, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.node == nil {
				return nil, errors.New("not found")
			}
			return m.node, nil
		},
		CustomNodeResource: func(context.Context) (v1.ResourceList, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.resource, m.resourceErr
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func newMachine() *machine {
	m := &machine{settings: plugins.Settings{
		PluginSettings: pressure.Default().Plugins.Eviction.Settings, Period: 5 * time.Second, MonitoringPeriod: time.Minute,
	}}
	m.settings.RootfsOveruse.SharedUsed, m.settings.RootfsPressure.Free = "10Gi", "10%"
	m.settings.CPUPressure.Window.Duration = 0
	return m
}

func requests(name v1.ResourceName, amount string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{name: resource.MustParse(amount)}
	}
}

func reclaimedPod(name string, changes ...func(*v1.Pod)) *v1.Pod {
	return pod(name, append(changes, annotated(arbiter.QoSLevelKey, arbiter.ReclaimedCores))...)
}

// inTreeCase is a plugin of the agent with pods of which it requests some.
type inTreeCase struct {
	pods []*v1.Pod
	// trouble and relief change what the plugin reads: after trouble it requests pods, after relief none.
	trouble, relief func(*machine)
	// evicted are the requests to the pod workers, message the parts of the message of the first of them. Soft requests
	// evict one pod in each round.
	evicted []string
	message []string
	// condition is that of the Node in trouble, empty for none.
	condition string
}

func inTreeCases() map[string]inTreeCase {
	const mi = 1 << 20
	node := func(milliCPU string) func(*machine) {
		return func(m *machine) {
			m.node = &v1.Node{}
			m.node.Status.Allocatable = v1.ResourceList{reclaimedresource.MilliCPU: resource.MustParse(milliCPU)}
		}
	}
	return map[string]inTreeCase{
		pressure.RSSOverusePlugin: {
			pods: []*v1.Pod{
				pod("a", requests(v1.ResourceMemory, "100Mi")), pod("b", requests(v1.ResourceMemory, "100Mi")), pod("c"),
			},
			trouble: func(m *machine) { m.resident = map[types.UID]int64{"a": 106 * mi, "b": 105 * mi, "c": 900 * mi} },
			relief:  func(m *machine) { m.resident = map[types.UID]int64{"a": 50 * mi} },
			evicted: []string{"a/30"},
			message: []string{"resident set 106.0 MiB is more than 1.05 times the requested memory 100.0 MiB"},
		},
		pressure.NUMAMemoryPressurePlugin: {
			pods: []*v1.Pod{reclaimedPod("a", priority(9)), pod("b"), reclaimedPod("c")},
			trouble: func(m *machine) {
				m.zones = []numamemory.Zone{numaNode(0, 60<<30), numaNode(1, 2<<30-1)}
				m.byNode = map[types.UID]map[int]int64{"a": {0: 1, 1: 1 << 30}, "b": {1: 9 << 30}, "c": {0: 1 << 40, 1: 1}}
			},
			relief:  func(m *machine) { m.zones[1] = numaNode(1, 60<<30) },
			evicted: []string{"a/30"}, message: []string{"scope memory: 2.14748e+09 is below the threshold 2.14748e+09"},
		},
		pressure.RootfsOverusePlugin: {
			pods: pods("a", "b"),
			trouble: func(m *machine) {
				m.disks, m.free = map[types.UID]snapshot.Bytes{"a": 10 << 30, "b": 10<<30 + 1}, 50<<30
			},
			relief:  func(m *machine) { m.disks["b"] = 1 },
			evicted: []string{"b/30"}, message: []string{"writable layers use", "more than the threshold 10Gi"},
		},
		pressure.RootfsPressurePlugin: {
			pods: []*v1.Pod{pod("a"), reclaimedPod("b")},
			trouble: func(m *machine) {
				m.disks, m.free = map[types.UID]snapshot.Bytes{"a": 5 << 30, "b": 2 << 30}, 9<<30
			},
			relief:  func(m *machine) { m.free = 10 << 30 },
			evicted: []string{"b/30"}, message: []string{"9Gi of the file system of containers are free"},
		},
		pressure.CPUPressurePlugin: {
			pods: []*v1.Pod{pod("a"), reclaimedPod("b")},
			trouble: func(m *machine) {
				m.cpu = cpupressure.Node{Stall: new(90.0), Idle: new(int64(0)), Total: new(int64(0)), CPUs: 1}
				m.used = map[types.UID]time.Duration{"a": time.Second, "b": time.Second}
			},
			relief:  func(m *machine) { m.cpu.Stall = new(0.0) },
			evicted: []string{"b/30"}, message: []string{"tasks of the node have waited for CPUs for 90.00 %"},
		},
		pressure.SystemMemoryPressurePlugin: {
			pods: []*v1.Pod{pod("a"), reclaimedPod("b"), reclaimedPod("c")},
			trouble: func(m *machine) {
				m.memory = systemmemory.Node{Free: new(int64(9)), Total: new(int64(10000)), ScaleFactor: new(int64(10))}
				m.usage = map[types.UID]int64{"a": 9, "b": 1, "c": 2}
			},
			relief:  func(m *machine) { m.memory.Free = new(int64(10)) },
			evicted: []string{"c/30"}, message: []string{"scope memory: 9 is below the threshold 10"},
			condition: "MemoryPressure=True",
		},
		pressure.ReclaimedResourcePressurePlugin: {
			pods: []*v1.Pod{
				reclaimedPod("a", requests(reclaimedresource.MilliCPU, "3000")),
				reclaimedPod("b", requests(reclaimedresource.MilliCPU, "2001")),
				pod("c", requests(reclaimedresource.MilliCPU, "9000")),
			},
			trouble: node("1000"), relief: node("1001"), evicted: []string{"a/60"},
			message: []string{"reclaimed_millicpu: 5001 is above the threshold 5000"},
		},
	}
}

// numaNode is a NUMA node of 64 GiB with that much free memory, which is critical below 2 GiB.
func numaNode(n int, free int64) numamemory.Zone {
	return numamemory.Zone{Node: n, Total: 64 << 30, Free: free, Min: 1 << 30, Low: 1 << 30, InactiveFile: 9 << 30}
}

// TestPluginsInTheAgent runs each plugin of the agent through the real parts: nothing while it can read nothing, the
// right pod in trouble, nobody in dry run, and nothing after the trouble.
func TestPluginsInTheAgent(t *testing.T) {
	t.Parallel()
	cases := inTreeCases()
	for _, name := range pressure.InTreePlugins() {
		c, ok := cases[name]
		if !ok {
			if name != pressure.MemoryGrowthPlugin { // has tests of its own, with simulated growth
				t.Errorf("%s has no case", name)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine()
			r := newRig(t, func(o *plugin.Options) {
				o.InTree, o.DryRun, o.Rules.Killers.Soft = plugin.Selector{name}, plugin.Selector{name}, snapshot.PodWorker
			}, c.pods...)
			r.inTree, r.stats = m.set(t).Plugins(), m.stats
			r.start()
			r.inTreeCalled(name)
			r.evictedInTree(name)
			m.change(c.trouble)
			r.await("requests in dry run", func() string {
				if r.row(name).Pods.Asked == 0 {
					return "none"
				}
				return ""
			})
			r.evictedInTree(name)
			r.reload(func(o *plugin.Options) { o.DryRun = nil })
			r.evictedInTree(name, c.evicted...)
			if c.condition != "" {
				r.conditions(c.condition)
			} else {
				r.conditions()
			}
			first, _, _ := strings.Cut(c.evicted[0], "/")
			r.message(first, append(c.message, "plugin "+name)...)
			m.change(c.relief)
			r.await("the requests have ended", func() string {
				if row := r.row(name); row.Pods.Asked > 0 {
					return fmt.Sprintf("%+v", row)
				}
				return ""
			})
			r.evictedInTree(name, c.evicted...)
		})
	}
}

// inTreeCalled waits until the plugin has been called in two more rounds.
func (r *rig) inTreeCalled(name string) {
	r.t.Helper()
	want := r.metric("calls_total", name) + 4
	r.await("rounds", func() string {
		if n := r.metric("calls_total", name); n < want {
			return fmt.Sprintf("%v of %v calls", n, want)
		}
		return ""
	})
}

// evictedInTree is evicted for a plugin of the agent.
func (r *rig) evictedInTree(name string, want ...string) {
	r.t.Helper()
	slices.Sort(want)
	r.await("requests to the pod workers", func() string { return differs(r.killed(), want) })
	r.inTreeCalled(name)
	if diff := differs(r.killed(), want); diff != "" {
		r.t.Error(diff)
	}
}

// TestPluginsInTheAgentKeepTheContract: each plugin names only pods that it is shown, each once, changes nothing that
// it is given, answers without a round of the eviction manager, and repeats its answer within a round.
func TestPluginsInTheAgentKeepTheContract(t *testing.T) {
	t.Parallel()
	for name, c := range inTreeCases() {
		m := newMachine()
		p := m.set(t).Plugins()[name]
		for _, trouble := range []bool{false, true, true} {
			if trouble {
				m.change(c.trouble)
			}
			for n := range len(c.pods) + 1 {
				v := &plugin.View{Taken: time.Now(), Pods: c.pods[:n]}
				before := deepCopies(v.Pods)
				asked := answers(t, p, v)
				if !slices.EqualFunc(v.Pods, before, func(a, b *v1.Pod) bool { return reflect.DeepEqual(a, b) }) {
					t.Errorf("%s has changed the pods", name)
				}
				for i, uid := range asked {
					if v.Pod(string(uid)) == nil || slices.Contains(asked[:i], uid) {
						t.Errorf("%s has named %q of %d pods", name, asked, n)
					}
				}
				if !trouble && len(asked) > 0 {
					t.Errorf("%s has named %q although nothing can be read", name, asked)
				}
				if again := answers(t, p, v); !slices.Equal(again, asked) {
					t.Errorf("%s has named %q, then %q", name, asked, again)
				}
			}
		}
	}
}

func deepCopies(pods []*v1.Pod) (list []*v1.Pod) {
	for _, pod := range pods {
		list = append(list, pod.DeepCopy())
	}
	return list
}

// answers makes the calls of a round, and returns the pods that the plugin names.
func answers(t *testing.T, p plugin.Plugin, v *plugin.View) (asked []types.UID) {
	t.Helper()
	ctx := context.Background()
	demand, err := p.EvictPods(ctx, v)
	if (demand == nil) == (err == nil) {
		t.Errorf("%+v, %v", demand, err)
	}
	if demand != nil {
		for _, d := range demand.Pods {
			asked = append(asked, d.UID)
		}
	}
	threshold, err := p.ThresholdMet(ctx, v)
	if (threshold == nil) == (err == nil) {
		t.Errorf("%+v, %v", threshold, err)
	}
	q := arbiter.Question{Kind: arbiter.Hard, TopN: 1}
	if threshold != nil {
		q.Scope = threshold.Scope
	}
	reply, err := p.TopEvictionPods(ctx, v, q)
	if err != nil || reply == nil || !reflect.DeepEqual(reply.Question, q) || len(reply.Pods) > 1 {
		t.Fatalf("%+v, %v", reply, err)
	}
	if threshold == nil || threshold.Kind == arbiter.NotMet {
		if len(reply.Pods) > 0 {
			t.Errorf("%+v although the threshold is not met", reply)
		}
		return asked
	}
	return append(asked, reply.Pods...)
}
