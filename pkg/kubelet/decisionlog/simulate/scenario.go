package simulate

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const mi, gi = 1 << 20, 1 << 30

// scenarioPods are the neighbours in a scenario; scenarioStep is the time between two snapshots.
const (
	scenarioPods  = 20
	scenarioSteps = 360
	scenarioStep  = time.Second
)

// Scenarios are the names of the synthetic traces.
func Scenarios() []string { return []string{"leak", "burst", "many-leaks", "disk-fill", "fork-bomb"} }

// scenario is a node of 16 GiB with pods whose usage is a function of time.
type scenario struct {
	// memory, disk and processes of pod i at a second.
	memory, disk, processes func(i, second int) int64
}

func steady(i int) int64 { return int64(200+10*i) * mi }

func none(int, int) int64 { return 0 }

var scenarios = map[string]scenario{
	// One pod grows by 50 MiB per second.
	"leak": {memory: func(i, second int) int64 {
		if i == 0 {
			return steady(i) + int64(second)*50*mi
		}
		return steady(i)
	}},
	// After a minute one pod takes 11 GiB within five seconds.
	"burst": {memory: func(i, second int) int64 {
		if i == 0 {
			return steady(i) + int64(min(max(second-60, 0), 5))*11*gi/5
		}
		return steady(i)
	}},
	// Ten pods grow by 5 MiB per second each.
	"many-leaks": {memory: func(i, second int) int64 {
		if i < 10 {
			return steady(i) + int64(second)*5*mi
		}
		return steady(i)
	}},
	// One pod writes 400 MiB per second.
	"disk-fill": {disk: func(i, second int) int64 {
		if i == 0 {
			return int64(second) * 400 * mi
		}
		return 50 * mi
	}},
	// One pod starts 150 processes per second.
	"fork-bomb": {processes: func(i, second int) int64 {
		if i == 0 {
			return int64(second) * 150
		}
		return 5
	}},
}

// Scenario returns the lines of a synthetic trace, as one would be recorded of a node that evicts nothing. It is the
// same for each call.
func Scenario(name string) ([]trace.Line, error) {
	c, ok := scenarios[name]
	if !ok {
		return nil, fmt.Errorf("scenario %q: must be one of %q", name, Scenarios())
	}
	if c.memory == nil {
		c.memory = func(i, _ int) int64 { return steady(i) }
	}
	if c.disk == nil {
		c.disk = none
	}
	if c.processes == nil {
		c.processes = func(int, int) int64 { return 5 }
	}
	facts := make([]*snapshot.Facts, scenarioPods)
	for i := range facts {
		facts[i] = &snapshot.Facts{
			UID: types.UID(fmt.Sprintf("scenario-%02d", i)), Namespace: "scenario", Name: fmt.Sprintf("pod-%02d", i),
			QOS: v1.PodQOSBurstable, MemoryRequest: snapshot.Bytes(steady(i)), StorageRequest: 100 * mi,
		}
	}
	// Rules without thresholds: nothing is decided. Those of the plan are what counts.
	rules := &policy.Rules{Timing: policy.Timing{
		Period: 10 * time.Second, KillTime: 3 * time.Second, Settling: 5 * time.Minute, Patience: 30 * time.Second,
	}, PressureTransitionPeriod: 5 * time.Minute}
	var lines []trace.Line
	var state policy.State
	for second := range scenarioSteps {
		s := c.snapshot(facts, second)
		input := &trace.Input{Snapshot: s, Rules: rules, State: new(state)}
		var d policy.Decision
		d, state = policy.Decide(s, rules, state)
		described := trace.Describe(&trace.Round{
			Trigger: "timer", Snapshot: s, Rules: rules, State: input.State, Decision: &d,
		})
		lines = append(lines, trace.Line{Trace: debugv1alpha1.PressureTrace{Decision: &described}, Input: input})
	}
	return lines, nil
}

// scenarioStart is when each scenario begins.
var scenarioStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (c *scenario) snapshot(facts []*snapshot.Facts, second int) *snapshot.Snapshot {
	at := scenarioStart.Add(time.Duration(second) * scenarioStep)
	s := &snapshot.Snapshot{Taken: at, WallTime: at, Signals: snapshot.Unobserved(), Layout: snapshot.Layout{Known: true}}
	memory := fill(c.memory, second, 15*gi)
	disk := fill(c.disk, second, 80*gi)
	processes := fill(c.processes, second, 32000)
	for i, f := range facts {
		m, d, p := memory[i], disk[i], processes[i]
		s.Pods = append(s.Pods, snapshot.Pod{Facts: f, Images: snapshot.Unknown, Usage: &snapshot.Usage{
			Memory: snapshot.Bytes(m), AnonymousMemory: snapshot.Bytes(m), MemoryDate: at.UnixNano(), PIDs: snapshot.PIDs(p),
			LocalStorage: snapshot.Bytes(d), Containers: []snapshot.ContainerUsage{{
				Name: "main", Memory: snapshot.Bytes(m), WritableLayer: snapshot.FsUsage{Bytes: snapshot.Bytes(d), Inodes: 10},
			}},
		}})
	}
	for sig, o := range map[snapshot.Signal]snapshot.Observation{
		snapshot.MemoryAvailable: {Available: 15*gi - sum(memory), Capacity: 16 * gi, At: at},
		snapshot.NodeFsAvailable: {Available: 80*gi - sum(disk), Capacity: 100 * gi, At: at},
		snapshot.PIDAvailable:    {Available: 32000 - sum(processes), Capacity: 32768, At: at},
	} {
		s.Signals[sig] = o
	}
	return s
}

// fill returns the usage of all pods at a second. Together it is at most what there is: what exceeds that, the pods do
// not get that grow.
func fill(usage func(i, second int) int64, second int, most int64) []int64 {
	all := make([]int64, scenarioPods)
	for i := range all {
		all[i] = usage(i, second)
	}
	excess := sum(all) - most
	for i := range all {
		cut := min(max(excess, 0), all[i]-usage(i, 0))
		all[i], excess = all[i]-cut, excess-cut
	}
	return all
}

func sum(list []int64) (total int64) {
	for _, n := range list {
		total += n
	}
	return total
}
