package cpupressure

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

var (
	settings = Settings{
		Stall: 60, Busy: 90, Throttled: 50, Window: time.Minute, PodCPU: 1, Period: 5 * time.Second,
	}
	start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// load is what a node of four CPUs does from one round to the next: tasks that wait, idle CPUs and throttled periods in
// percent, and the CPUs that pods use.
type load struct {
	stall, idle, throttled float64
	pods                   map[types.UID]float64
}

func pod(name, level string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, UID: types.UID(name), Annotations: map[string]string{arbiter.QoSLevelKey: level},
	}}
}

// node plays rounds.
type node struct {
	t     *testing.T
	facts Facts
	state State
}

func newNode(t *testing.T) *node {
	return &node{t: t, facts: Facts{Now: start, Pods: []*v1.Pod{
		pod("shared", ""), pod("a", "reclaimed_cores"), pod("b", "reclaimed_cores"),
	}, Used: map[types.UID]time.Duration{"shared": 0, "a": 0, "b": 0}, Node: Node{
		Stall: new(0.0), Idle: new(int64(0)), Total: new(int64(0)), Periods: new(int64(0)), Throttled: new(int64(0)), CPUs: 4,
	}}}
}

// round plays one round after a time with a load, and returns the pod that is requested, empty for none.
func (n *node) round(after time.Duration, l load) string {
	n.t.Helper()
	f := &n.facts
	f.Now = f.Now.Add(after)
	add := func(p **int64, amount float64) {
		if *p != nil {
			*p = new(**p + int64(amount))
		}
	}
	if f.Node.Stall != nil {
		f.Node.Stall = &l.stall
	}
	add(&f.Node.Total, 10_000)
	add(&f.Node.Idle, 100*l.idle)
	add(&f.Node.Periods, 10_000)
	add(&f.Node.Throttled, 100*l.throttled)
	used := map[types.UID]time.Duration{}
	for uid, before := range f.Used {
		used[uid] = before + time.Duration(l.pods[uid]*float64(after))
	}
	f.Used = used
	found, state, err := Decide(f, &settings, n.state)
	if err != nil {
		n.t.Fatal(err)
	}
	n.state = state
	if len(found.Pods) > 1 || found.Threshold.Kind != arbiter.NotMet {
		n.t.Errorf("%+v", found)
	}
	if len(found.Pods) == 0 {
		return ""
	}
	d := found.Pods[0]
	if d.Force || !strings.Contains(d.Reason, "CPUs") && !strings.Contains(d.Reason, "periods") {
		n.t.Errorf("%+v", d)
	}
	return string(d.UID)
}

// rounds plays rounds five seconds apart, and returns the seconds from the start of the first in which a pod is
// requested, with that pod.
func (n *node) rounds(count int, l load) string {
	n.t.Helper()
	for i := range count {
		if got := n.round(5*time.Second, l); got != "" {
			return fmt.Sprintf("%s after %d s", got, 5*i)
		}
	}
	return ""
}

var using = map[types.UID]float64{"shared": 3, "a": 0.5, "b": 0.4}

// TestThresholds has loads at, just below and just above each threshold, for more than the window.
func TestThresholds(t *testing.T) {
	for name, tc := range map[string]struct {
		load load
		want string
	}{
		"waiting at the threshold":   {load{stall: 60, idle: 10, pods: using}, "a after 60 s"},
		"waiting just below":         {load{stall: 59.99, idle: 0, pods: using}, ""},
		"CPUs are idle just above":   {load{stall: 100, idle: 10.01, pods: using}, ""},
		"throttled at the threshold": {load{throttled: 50, idle: 90, pods: using}, "a after 60 s"},
		"throttled just below":       {load{throttled: 49.99, idle: 90, pods: using}, ""},
		"no reclaimed pod works": {load{stall: 90, pods: map[types.UID]float64{"shared": 4, "a": 0.0399, "b": 0}},
			""},
		"one uses as much as counts": {load{stall: 90, pods: map[types.UID]float64{"shared": 4, "a": 0, "b": 0.04}},
			"b after 60 s"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.round(0, load{})
			if got := n.rounds(40, tc.load); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestOverTime: the window begins again after a calm round, after missing rounds, and when a reclaimed pod is being
// stopped. A round in which a source is unknown is as one that is missing.
func TestOverTime(t *testing.T) {
	var high load
	for name, tc := range map[string]struct {
		between func(*node)
		want    string
	}{
		"nothing":        {func(*node) {}, "a after 0 s"},
		"a calm round":   {func(n *node) { n.round(5*time.Second, load{stall: 59, pods: using}) }, "a after 60 s"},
		"missing rounds": {func(n *node) { n.round(15*time.Second+1, high) }, "a after 60 s"},
		"a late round":   {func(n *node) { n.round(14*time.Second, high) }, "a after 0 s"},
		"an early round": {func(n *node) { n.round(100*time.Millisecond, high) }, "a after 0 s"},
		"one ends": {func(n *node) {
			n.facts.Ending = map[types.UID]bool{"a": true}
			n.round(5*time.Second, high)
			n.facts.Ending = nil
		}, "a after 60 s"},
		"it is gone by the next round": {func(n *node) {
			n.facts.Pods = n.facts.Pods[2:]
			n.round(5*time.Second, high)
		}, "b after 60 s"},
		"it ends for ever, and uses nothing": {func(n *node) {
			n.facts.Ending = map[types.UID]bool{"a": true}
			n.round(5*time.Second, high)
			high = load{stall: 90, pods: map[types.UID]float64{"b": 0.4}}
		}, "b after 60 s"},
		"it ends for ever, and works on": {func(n *node) {
			n.facts.Ending = map[types.UID]bool{"a": true}
		}, ""},
		"another ends": {func(n *node) {
			n.facts.Ending = map[types.UID]bool{"shared": true}
			n.round(5*time.Second, high)
			n.facts.Ending = nil
		}, "a after 0 s"},
		"counters restart": {func(n *node) {
			n.facts.Node.Total, n.facts.Node.Idle = new(int64(0)), new(int64(0))
			n.round(5*time.Second, high)
		}, "a after 0 s"},
		"less time waiting for disks than before": {func(n *node) {
			n.facts.Node.Idle = new(*n.facts.Node.Idle - 1)
			n.round(5*time.Second, high)
		}, "a after 0 s"},
		"a source is unknown in a round": {func(n *node) {
			known := n.facts.Node
			n.facts.Node.Idle, n.facts.Node.Total = nil, nil
			if got := n.round(5*time.Second, high); got != "" {
				n.t.Errorf("requested: %q", got)
			}
			n.facts.Node = known
		}, "a after 0 s"},
		"a source is unknown for long": {func(n *node) {
			known := n.facts.Node
			n.facts.Node.Stall = nil
			for range 3 {
				n.round(5*time.Second, high)
			}
			n.facts.Node.Stall = known.Stall
		}, "a after 60 s"},
		"nothing is known in a round": {func(n *node) {
			var err error
			f := n.facts
			f.Now, f.Node = f.Now.Add(5*time.Second), Node{CPUs: 4}
			if _, n.state, err = Decide(&f, &settings, n.state); err == nil {
				n.t.Error("no error")
			}
			n.facts.Now = f.Now
		}, "a after 0 s"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			high = load{stall: 90, pods: using}
			n.round(0, load{})
			if got := n.rounds(14, high); got != "a after 60 s" {
				t.Fatal(got)
			}
			tc.between(n)
			if got := n.rounds(40, high); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// TestEarlyRound: a round a moment after the last one has the same answer.
func TestEarlyRound(t *testing.T) {
	n := newNode(t)
	high := load{stall: 90, pods: using}
	n.round(0, load{})
	if got := n.round(100*time.Millisecond, high); got != "" {
		t.Errorf("before rates are known: %q", got)
	}
	if got := n.rounds(14, high); got != "a after 60 s" {
		t.Fatal(got)
	}
	if got := n.round(100*time.Millisecond, load{}); got != "a" {
		t.Errorf("requested: %q", got)
	}
}

// TestUnknown: each of the two sources is enough; without both the rule fails.
func TestUnknown(t *testing.T) {
	n := newNode(t)
	n.facts.Node.Stall = nil
	n.round(0, load{})
	if got := n.rounds(40, load{throttled: 60, pods: using}); got != "a after 60 s" {
		t.Errorf("without pressure stall information: %q", got)
	}
	n = newNode(t)
	n.facts.Node.Periods = nil
	n.round(0, load{})
	if got := n.rounds(40, load{stall: 60, pods: using}); got != "a after 60 s" {
		t.Errorf("without throttling: %q", got)
	}
	n.facts.Node.Idle = nil
	if _, _, err := Decide(&n.facts, &settings, n.state); err == nil {
		t.Error("without anything: no error")
	}
}

// TestUnknownInARound: after a round in which a counter could not be read, what it has counted since the machine was
// started is no rate.
func TestUnknownInARound(t *testing.T) {
	for name, tc := range map[string]struct {
		before load
		forget func(*Node)
	}{
		"idle CPUs":         {load{}, func(n *Node) { n.Idle, n.Total = nil, nil }},
		"throttled periods": {load{throttled: 100}, func(n *Node) { n.Periods, n.Throttled = nil, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.round(0, load{})
			for range 1000 {
				n.round(5*time.Second, tc.before)
			}
			known := n.facts.Node
			tc.forget(&n.facts.Node)
			n.round(5*time.Second, load{pods: using})
			n.facts.Node = known
			// CPUs are idle and nothing is throttled; tasks wait, which does not count without the former.
			n.round(5*time.Second, load{stall: 90, idle: 50, pods: using})
			if _, waits := n.state.waits.For(); waits {
				t.Error("the CPUs count as busy")
			}
			if _, throttled := n.state.throttled.For(); throttled {
				t.Error("the pods count as throttled")
			}
		})
	}
}

// TestNoReclaimedPods: nothing happens on a node without reclaimed pods.
func TestNoReclaimedPods(t *testing.T) {
	n := newNode(t)
	n.facts.Pods = n.facts.Pods[:1]
	n.round(0, load{})
	if got := n.rounds(40, load{stall: 100, throttled: 100, pods: using}); got != "" {
		t.Errorf("requested: %q", got)
	}
}

// TestPodsShareIsExact: a pod that uses exactly the share that counts is requested, and one that uses a nanosecond less
// is not, whatever the share.
func TestPodsShareIsExact(t *testing.T) {
	defer func(before Settings) { settings = before }(settings)
	for percent := 1; percent <= 100; percent++ {
		for _, cpus := range []int{1, 3, 4, 96} {
			settings.PodCPU = float64(percent)
			exact := 5 * time.Second * time.Duration(percent*cpus) / 100
			for less, want := range []string{"a", ""} {
				n := newNode(t)
				n.facts.Node.CPUs = cpus
				n.round(0, load{})
				var got string
				for range 14 {
					n.facts.Used = maps.Clone(n.facts.Used)
					n.facts.Used["a"] += exact - time.Duration(less)
					got = n.round(5*time.Second, load{stall: 90})
				}
				if got != want {
					t.Errorf("%d %% of %d CPUs less %d ns: %q", percent, cpus, less, got)
				}
			}
		}
	}
}
