package reporters

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	v1 "k8s.io/api/core/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	pressureapi "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/conditions"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/pressure"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/system"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/topology"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// known is a plugin that is not scripted.
type known struct {
	name string
	// run makes the plugin and adds it to a rig that does not run yet: in the agent, or as a process.
	run func(r *rig)
	// reported and gone wait until what it reports is published, and is published no more.
	reported, gone func(r *rig)
}

func knownPlugins() []known {
	machine := &cadvisorapi.MachineInfo{
		NumCores: 4, MemoryCapacity: 8 << 30,
		Topology: []cadvisorapi.Node{{Id: 0, Memory: 8 << 30, Cores: []cadvisorapi.Core{
			{Id: 0, Threads: []int{0, 1}}, {Id: 1, Threads: []int{2, 3}},
		}}},
	}
	info := func() (*cadvisorapi.MachineInfo, error) { return machine, nil }
	no, yes := func() bool { return false }, func() bool { return true }
	inAgent := func(name string, plugin func(r *rig) reporter.Plugin) func(r *rig) {
		return func(r *rig) { r.inTree[name] = plugin(r) }
	}
	has := func(path, text string) func(r *rig) { return func(r *rig) { r.partHas(path, text) } }
	absent := func(path string) func(r *rig) { return func(r *rig) { r.part(path, "") } }
	return []known{{
		system.Name, inAgent(system.Name, func(r *rig) reporter.Plugin {
			return system.New(system.Config{MachineInfo: info, Root: fstest.MapFS{}, CPUFlags: no, Clock: r.clock})
		}),
		has("spec.nodeResourceProperties", `{"propertyName":"cpu","propertyQuantity":"4"}`),
		absent("spec.nodeResourceProperties"),
	}, {
		topology.Name, inAgent(topology.Name, func(r *rig) reporter.Plugin {
			return topology.New(topology.Config{
				Managers: managers{}, Ready: yes, MachineInfo: info, Pods: func() []*v1.Pod { return nil },
				Policy: "restricted", Scope: "pod", OnlyNUMABound: no, Clock: r.clock,
			})
		}),
		func(r *rig) {
			r.partHas("status.topologyZone", `"type":"Numa"`)
			r.part("status.topologyPolicy", `"RestrictedPodLevel"`)
		},
		absent("status.topologyZone"),
	}, {
		pressure.Name, inAgent(pressure.Name, func(r *rig) reporter.Plugin {
			p := pressure.New(r.clock, func() pressure.Settings { return pressure.Settings{MonitoringPeriod: 2 * grace} })
			now := r.clock.Now()
			p.Round(context.Background(), &eviction.Round{
				Snapshot: &snapshot.Snapshot{Taken: now}, Decision: policy.Decision{Outlook: []policy.SignalOutlook{{
					Signal: snapshot.MemoryAvailable, Level: policy.LevelCalm, Known: true, Observed: now, Available: 4 << 30,
					Capacity: 8 << 30, Threshold: 1 << 30, Headroom: 3 << 30,
				}}},
			})
			return p
		}),
		func(r *rig) { r.nodeHas(`"signal":"memory.available","level":"calm"`) }, func(r *rig) { r.nodeHas("") },
	}, {
		conditions.Name, inAgent(conditions.Name, func(*rig) reporter.Plugin {
			return conditions.New(func() []conditions.Condition {
				return []conditions.Condition{{Name: "Hot", Effects: []string{"reclaimed_cores/NoSchedule"}}}
			})
		}),
		has("spec.taints", `"key":"node.katalyst.kubewharf.io/Hot"`), absent("spec.taints"),
	}, {
		"example", func(r *rig) { r.runExample() },
		has("metadata.annotations", `"example.com/kernel"`), func(r *rig) { r.published("q=1") },
	}}
}

// managers are those of a node without policies and devices.
type managers struct{}

func (managers) GetCPUs(_, _ string) []int64                                { return nil }
func (managers) GetAllocatableCPUs() []int64                                { return nil }
func (managers) GetMemory(_, _ string) []*podresourcesapi.ContainerMemory   { return nil }
func (managers) GetAllocatableMemory() []*podresourcesapi.ContainerMemory   { return nil }
func (managers) GetDevices(_, _ string) []*podresourcesapi.ContainerDevices { return nil }
func (managers) GetAllocatableDevices() []*podresourcesapi.ContainerDevices { return nil }

// partHas waits until a part of the object has a text.
func (r *rig) partHas(path, text string) {
	r.t.Helper()
	r.await(path, func() string {
		if got := r.partOf(path); !strings.Contains(got, text) {
			return got
		}
		return ""
	})
}

// nodeHas waits until the annotation of the plugin pressure has a text, which is empty for absent.
func (r *rig) nodeHas(text string) {
	r.t.Helper()
	r.await("the annotation of the Node", func() string {
		n, _, known := r.node.Node()
		if got := n.Annotations["pressure.plimsoll.dev/signals"]; !known || (got == "") != (text == "") ||
			!strings.Contains(got, text) {
			return fmt.Sprint(known, got)
		}
		return ""
	})
}

// runExample runs the program of docs/writing-a-plugin.md as a process.
func (r *rig) runExample() {
	r.t.Helper()
	program := filepath.Join(r.t.TempDir(), "example")
	if out, err := exec.CommandContext(r.t.Context(), "go", "build", "-o", program,
		"github.com/plimsoll-project/plimsoll/examples/reporterplugin").CombinedOutput(); err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	process := exec.CommandContext(r.t.Context(), program, "-socket", r.socket("example"))
	if err := process.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = process.Process.Kill(); _ = process.Wait() })
}

// TestKnownPlugins plays the basic cases with the plugins in the agent, and with the example as a process: what they
// report is published, stays over a restart of the agent, goes a grace period after they are disabled, and returns.
func TestKnownPlugins(t *testing.T) {
	t.Parallel()
	for _, k := range knownPlugins() {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, nil)
			r.inTree["other"] = polled(says("q", "1"))
			r.scripts["other"] = r.inTree["other"].(*script)
			k.run(r)
			r.start()
			k.reported(r)
			r.await("the row of the plugin", func() string {
				row := r.row(k.name)
				if !row.Active || row.Answered.IsZero() || len(row.RefusedFields)+len(row.RefusedAnswers) > 0 {
					return fmt.Sprintf("%+v", row)
				}
				return ""
			})
			if result := r.merger.Last().Result; len(result.Conflicts) > 0 {
				t.Errorf("%+v", result.Conflicts)
			}
			r.restart()
			k.reported(r)
			r.await("an answer of this run", func() string {
				if row := r.row(k.name); !row.Active || row.Restored {
					return fmt.Sprintf("%+v", row)
				}
				return ""
			})
			r.reload(func(p *pressureapi.ReporterPluginsConfiguration) {
				p.Remote, p.InTree = []string{"*", "-" + k.name}, []string{"*", "-" + k.name}
			})
			since := r.lost(k.name)
			k.reported(r)
			r.fake.SetTime(since.Add(grace))
			k.gone(r)
			r.reload(func(p *pressureapi.ReporterPluginsConfiguration) { p.Remote, p.InTree = []string{"*"}, []string{"*"} })
			k.reported(r)
		})
	}
}

// TestExampleDies: what the example has reported goes a grace period after its socket was removed.
func TestExampleDies(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.inTree["other"] = polled(says("q", "1"))
	r.runExample()
	r.start()
	r.partHas("metadata.annotations", `"example.com/kernel"`)
	if err := os.Remove(r.socket("example")); err != nil {
		t.Fatal(err)
	}
	r.goes(r.lost("example"), "q=1")
}
