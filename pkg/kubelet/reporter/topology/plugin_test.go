package topology_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/topology"
)

var update = flag.Bool("update", false, "write what is reported of each machine into testdata; read the diff")

// Stock's CPU manager starts a goroutine that never ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Until"))
}

func pluginOn(n *node) *topology.Plugin {
	return topology.New(topology.Config{
		Managers: n, Ready: n.Ready, MachineInfo: n.MachineInfo, Pods: n.Pods, OnlyNUMABound: n.OnlyNUMABound,
		Policy: "single-numa-node", Scope: "container", Clock: clock.RealClock{},
	})
}

func status(t testing.TB, contents []merge.Content) v1alpha1.CustomNodeResourceStatus {
	t.Helper()
	if err := merge.Validate(contents); err != nil {
		t.Fatal(err)
	}
	result := merge.Merge([]merge.Report{{Plugin: topology.Name, Contents: contents}}, merge.Options{})
	if len(result.Refusals) > 0 || len(result.Conflicts) > 0 {
		t.Fatalf("refused %v, conflicts %v", result.Refusals, result.Conflicts)
	}
	return result.CustomNodeResource.Status
}

func poll(t testing.TB, p *topology.Plugin) v1alpha1.CustomNodeResourceStatus {
	t.Helper()
	contents, err := p.GetReportContent(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return status(t, contents)
}

// What is reported of each machine is in testdata, and no part of it is refused.
func TestMachines(t *testing.T) {
	for _, name := range machines {
		for _, bound := range []bool{false, true} {
			n := furnished(machine(t, name))
			n.bound = bound
			got, err := json.MarshalIndent(poll(t, pluginOn(n)), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+map[bool]string{false: ".json", true: "-bound.json"}[bound])
			if *update {
				if err := os.WriteFile(file, append(got, '\n'), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
				t.Errorf("%s (-want +got; -update writes it):\n%s", file, diff)
			}
		}
	}
}

func TestPolicies(t *testing.T) {
	for _, c := range []struct{ policy, scope, want string }{
		{"none", "container", "None"},
		{"none", "pod", "None"},
		{"none", "", "None"},
		{"best-effort", "container", "BestEffortContainerLevel"},
		{"best-effort", "pod", "BestEffortPodLevel"},
		{"restricted", "container", "RestrictedContainerLevel"},
		{"restricted", "pod", "RestrictedPodLevel"},
		{"single-numa-node", "container", "SingleNUMANodeContainerLevel"},
		{"single-numa-node", "pod", "SingleNUMANodePodLevel"},
		{"single-numa-node", "node", ""},
		{"another", "pod", ""},
		{"", "", ""},
	} {
		n := newNode(machine(t, "1x1"))
		contents, err := topology.New(topology.Config{
			Managers: n, Ready: n.Ready, MachineInfo: n.MachineInfo, Pods: n.Pods, OnlyNUMABound: n.OnlyNUMABound,
			Policy: c.policy, Scope: c.scope, Clock: clock.RealClock{},
		}).GetReportContent(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if got := status(t, contents).TopologyPolicy; string(got) != c.want {
			t.Errorf("%s, %s: reported %q, want %q", c.policy, c.scope, got, c.want)
		}
	}
}

// A machine of which nothing is known, and one without managers' policies, pods and devices.
func TestNothingIsKnown(t *testing.T) {
	n := newNode(nil)
	if _, err := pluginOn(n).GetReportContent(context.Background()); err == nil {
		t.Error("reported without knowing the machine")
	}
	failed := errors.New("cannot read")
	n.machineErr = failed
	if _, err := pluginOn(n).GetReportContent(context.Background()); !errors.Is(err, failed) {
		t.Errorf("error %v, want one with the cause %v", err, failed)
	}
	n = newNode(machine(t, "1x1"))
	n.pods = []*v1.Pod{nil, {}}
	n.devices["/c"] = []*podresourcesapi.ContainerDevices{nil}
	n.allocatableMemory = []*podresourcesapi.ContainerMemory{nil, {}}
	n.allocatableDevices = []*podresourcesapi.ContainerDevices{nil, {DeviceIds: []string{"d"}, ResourceName: "a/b",
		Topology: &podresourcesapi.TopologyInfo{Nodes: []*podresourcesapi.NUMANode{nil, {ID: 99}, {ID: -1}}}}}
	zones := poll(t, pluginOn(n)).TopologyZone
	if len(zones) != 1 || len(zones[0].Children) != 1 || zones[0].Children[0].Resources.Capacity.Cpu().Value() != 2 {
		t.Errorf("zones of a plain machine: %+v", zones)
	}
	n.machine.Topology = nil
	if zones := poll(t, pluginOn(n)).TopologyZone; len(zones) != 1 || zones[0].Name != "d" {
		t.Errorf("zones of a machine without NUMA nodes: %+v", zones)
	}
}

// Before the managers have been started they are not called, and nothing is reported that could replace what an earlier
// run of the agent has published.
func TestNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := furnished(machine(t, "2x2"))
		n.ready = false
		p := pluginOn(n)
		if _, err := p.GetReportContent(t.Context()); !errors.Is(err, reporter.ErrNotCalled) {
			t.Errorf("polled: %v", err)
		}
		s := watch(t, p)
		time.Sleep(time.Minute)
		synctest.Wait()
		if s.count() > 0 || n.reads > 0 {
			t.Errorf("sent %d answers, read the managers %d times", s.count(), n.reads)
		}
		n.change(func() { n.ready = true })
		time.Sleep(time.Second)
		synctest.Wait()
		if s.count() != 1 {
			t.Errorf("sent %d answers a second after the managers have started", s.count())
		}
	})
}

// stream is a stream that is open.
type stream struct {
	sent   [][]merge.Content
	at     []time.Duration
	begun  time.Time
	ended  chan error
	cancel context.CancelFunc
}

// watch opens a stream, inside a bubble, and closes it at the end of the test.
func watch(t *testing.T, p *topology.Plugin) *stream {
	ctx, cancel := context.WithCancel(t.Context())
	s := &stream{begun: time.Now(), ended: make(chan error, 1), cancel: cancel}
	go func() {
		s.ended <- p.ListAndWatch(ctx, func(contents []merge.Content) {
			s.sent = append(s.sent, contents)
			s.at = append(s.at, time.Since(s.begun))
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-s.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the stream ended with %v", err)
		}
	})
	return s
}

// count and last are called when all goroutines of the bubble are blocked.
func (s *stream) count() int                { return len(s.sent) }
func (s *stream) last() []merge.Content     { return s.sent[len(s.sent)-1] }
func (s *stream) lastSentAt() time.Duration { return s.at[len(s.at)-1] }

// consumers are those of all zones of a type.
func consumers(zones []v1alpha1.TopologyZone, of v1alpha1.TopologyType) (list []string) {
	for _, z := range zones {
		if z.Type == of {
			for _, a := range z.Allocations {
				list = append(list, a.Consumer)
			}
		}
		list = append(list, consumers(z.Children, of)...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// The start and the end of a pod are sent within a second, and at once when Changed is called. Nothing is sent while
// nothing changes.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(machine(t, "2x1"))
		n.allocatableDevices = deviceOn("nvidia.com/gpu", "GPU-0", 1)
		p := pluginOn(n)
		s := watch(t, p)
		synctest.Wait()
		if s.count() != 1 {
			t.Fatalf("%d answers at the begin", s.count())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.count() != 1 {
			t.Fatalf("%d answers after an hour without a change", s.count())
		}

		n.change(func() {
			n.addPod("web", "c")
			n.cpus["uid-web/c"] = []int64{3, 1}
			n.devices["uid-web/c"] = deviceOn("nvidia.com/gpu", "GPU-0", 1)
		})
		time.Sleep(time.Second)
		synctest.Wait()
		zones := status(t, s.last()).TopologyZone
		for _, of := range []v1alpha1.TopologyType{v1alpha1.TopologyTypeNuma, v1alpha1.TopologyTypeGPU} {
			if got := consumers(zones, of); !slices.Equal(got, []string{"shop/web/uid-web"}) {
				t.Errorf("%s: consumers %v a second after the start", of, got)
			}
		}

		time.Sleep(300 * time.Millisecond)
		before := time.Since(s.begun)
		n.change(func() { n.pods = nil })
		p.Changed()
		p.Changed()
		synctest.Wait()
		if s.lastSentAt() != before || len(consumers(status(t, s.last()).TopologyZone, v1alpha1.TopologyTypeNuma)) > 0 {
			t.Errorf("the end was not sent at once")
		}
		if s.count() != 3 {
			t.Errorf("%d answers, want 3", s.count())
		}
	})
}

// However often Changed is called, the plugin reads the managers at most ten times a second.
func TestChangesInGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(machine(t, "2x1"))
		p := pluginOn(n)
		watch(t, p)
		for range 10_000 {
			p.Changed()
			time.Sleep(time.Millisecond)
		}
		synctest.Wait()
		n.change(func() {
			if n.reads > 101 {
				t.Errorf("read %d times in 10 s", n.reads)
			}
		})
	})
}

// The option holds from the next reading on.
func TestOptionChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := furnished(machine(t, "2x2"))
		s := watch(t, pluginOn(n))
		synctest.Wait()
		all := consumers(status(t, s.last()).TopologyZone, v1alpha1.TopologyTypeNuma)
		n.change(func() { n.bound = true })
		time.Sleep(time.Second)
		synctest.Wait()
		bound := consumers(status(t, s.last()).TopologyZone, v1alpha1.TopologyTypeNuma)
		if len(all) != 2 || !slices.Equal(bound, []string{"shop/bound/uid-bound"}) {
			t.Errorf("consumers %v, only bound ones %v", all, bound)
		}
	})
}

// A machine that cannot be read ends the stream, which the driver opens again.
func TestMachineIsLost(t *testing.T) {
	n := newNode(nil)
	err := pluginOn(n).ListAndWatch(context.Background(), func([]merge.Content) { t.Error("sent an answer") })
	if err == nil {
		t.Error("the stream ended without an error")
	}
}

// The order in which managers and pods come is of no account: an answer that is equal is the same value.
func TestEqualFactsAreOneAnswer(t *testing.T) {
	n := furnished(machine(t, "2x2"))
	p := pluginOn(n)
	first, err := p.GetReportContent(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(n.pods)
	slices.Reverse(n.allocatableCPUs)
	slices.Reverse(n.allocatableMemory)
	slices.Reverse(n.allocatableDevices)
	slices.Reverse(n.machine.Topology)
	second, err := p.GetReportContent(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if &first[0] != &second[0] {
		t.Error("computed again for equal facts")
	}
}

// A node full of pods and devices stays below the limit of a value: zones of devices are left out first.
func TestLimits(t *testing.T) {
	n := newNode(machine(t, "2x2"))
	for r := range 40 {
		for d := range 60 {
			n.allocatableDevices = append(n.allocatableDevices,
				deviceOn(fmt.Sprintf("example.com/resource-%d", r), fmt.Sprintf("device-with-a-long-name-%d", d), int64(d%4))...)
		}
	}
	for i := range 500 {
		uid := fmt.Sprintf("uid-pod-%d", i)
		n.addPod(fmt.Sprintf("pod-%d", i), "c")
		n.memory[uid+"/c"] = []*podresourcesapi.ContainerMemory{memoryOn("memory", mi, int64(i%4))}
	}
	contents, err := pluginOn(n).GetReportContent(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	zones := status(t, contents).TopologyZone
	if got := len(consumers(zones, v1alpha1.TopologyTypeNuma)); got != 500 {
		t.Errorf("%d consumers, want 500", got)
	}
	if !bytes.Contains(contents[0].Fields[0].Value, []byte(`"example.com/resource-39":"15"`)) {
		t.Error("devices are not counted")
	}
}

// benchmarkNode has 110 pods with CPUs, memory and a device each, in two containers.
func benchmarkNode(b *testing.B) *node {
	n := furnished(machine(b, "2x2"))
	for i := range 110 {
		uid := fmt.Sprintf("uid-pod-%d", i)
		n.addPod(fmt.Sprintf("pod-%d", i), "c", "sidecar")
		n.cpus[uid+"/c"] = []int64{int64(i % 16)}
		n.memory[uid+"/c"] = []*podresourcesapi.ContainerMemory{memoryOn("memory", 100*mi, int64(i%4))}
		n.devices[uid+"/c"] = deviceOn("example.com/slot", fmt.Sprintf("slot-%d", i), int64(i%4))
		n.allocatableDevices = append(n.allocatableDevices, n.devices[uid+"/c"]...)
	}
	return n
}

// BenchmarkIdle is one reading without a change, which happens once a second and once each period of the polls. 10 ms
// would be 0.01 core.
func BenchmarkIdle(b *testing.B) {
	p := pluginOn(benchmarkNode(b))
	for b.Loop() {
		if _, err := p.GetReportContent(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChange is one reading with a change.
func BenchmarkChange(b *testing.B) {
	n := benchmarkNode(b)
	p := pluginOn(n)
	for i := 0; b.Loop(); i++ {
		n.cpus["uid-pod-0/c"] = []int64{int64(i % 16)}
		if _, err := p.GetReportContent(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
