package memorygrowth

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	mi       = int64(1) << 20
	gi       = int64(1) << 30
	capacity = 32 * gi
	// callPeriod is the time between two calls of the plugin, period the monitoring period.
	callPeriod, period = 10 * time.Second, 10 * time.Second
	horizon            = 2 * time.Minute
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// usage is how much memory is used at a time, in bytes.
type usage func(at time.Duration) int64

// pod is a pod that starts at a time and requests memory.
type pod struct {
	name    string
	begins  time.Duration
	request int64
	// unnamed: plugins may not name the pod.
	unnamed bool
	memory  usage
}

func (p *pod) object() *v1.Pod {
	o := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: "ns", UID: types.UID(p.name)},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}}}
	if p.request > 0 {
		o.Spec.Containers[0].Resources.Requests = v1.ResourceList{
			v1.ResourceMemory: *resource.NewQuantity(p.request, resource.BinarySI)}
	}
	return o
}

// node runs pods in simulated time: rounds as decisions ask for them, and calls of the plugin between.
type node struct {
	pods   []pod
	system usage
	// allocatable: the thresholds include one of allocatable memory, which is all of the node.
	allocatable bool
	inFlight    []snapshot.InFlight

	settings Settings
	plugin   *Plugin
	rules    policy.Rules
	state    policy.State
	objects  []*v1.Pod
	facts    []*snapshot.Facts
	last     *eviction.Round
	// observe, when set, is called after each round.
	observe func(at time.Duration)
}

// demand is what the plugin asked for, and when.
type demand struct {
	at     time.Duration
	pod    types.UID
	reason string
}

func hard(signal snapshot.Signal) policy.Threshold {
	return policy.Threshold{Signal: signal, Value: evictionapi.ThresholdValue{Quantity: new(resource.MustParse("100Mi"))}}
}

// begin prepares the node; other methods do it where it is not done.
func (n *node) begin() {
	if n.plugin != nil {
		return
	}
	n.settings = Settings{Horizon: horizon, MonitoringPeriod: period}
	n.plugin = New(func() Settings { return n.settings })
	c := v1alpha1.Default()
	n.rules = policy.Rules{Thresholds: []policy.Threshold{hard(snapshot.MemoryAvailable)}, ReportMemoryGrowth: true,
		Timing: policy.Timing{Period: period, KillTime: c.Eviction.KillTime.Duration,
			Settling: c.Eviction.Settling.Duration, Patience: c.Eviction.Patience.Duration}}
	if n.allocatable {
		n.rules.Thresholds = append(n.rules.Thresholds, hard(snapshot.AllocatableMemoryAvailable))
	}
	for i := range n.pods {
		n.objects = append(n.objects, n.pods[i].object())
		n.facts = append(n.facts, snapshot.NewFacts(n.objects[i], true))
	}
}

func (n *node) snapshot(at time.Duration) *snapshot.Snapshot {
	now := start.Add(at)
	s := &snapshot.Snapshot{Taken: now, WallTime: now.Add(-time.Hour), Signals: snapshot.Unobserved(),
		InFlight: n.inFlight}
	pods := int64(0)
	for i := range n.pods {
		p := &n.pods[i]
		if at < p.begins {
			continue
		}
		used := p.memory(at - p.begins)
		pods += used
		s.Pods = append(s.Pods, snapshot.Pod{Facts: n.facts[i], Images: snapshot.Unknown,
			Cgroup: &snapshot.Memory{WorkingSet: snapshot.Known(snapshot.Bytes(used), s.WallTime)}})
	}
	all := pods
	if n.system != nil {
		all += n.system(at)
	}
	s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: capacity - all, Capacity: capacity}
	s.Signals[snapshot.AllocatableMemoryAvailable] = snapshot.Observation{Available: capacity - pods, Capacity: capacity}
	return s
}

// call calls the plugin.
func (n *node) call(t testing.TB, at time.Duration) []demand {
	v := &plugin.View{Taken: start.Add(at), Node: n.last}
	for i := range n.pods {
		if !n.pods[i].unnamed && at >= n.pods[i].begins {
			v.Pods = append(v.Pods, n.objects[i])
		}
	}
	answer, err := n.plugin.EvictPods(context.Background(), v)
	if err != nil || answer == nil {
		t.Fatal("no answer: ", err)
	}
	var list []demand
	for _, p := range answer.Pods {
		if p.Force || p.GraceSeconds != nil {
			t.Errorf("%+v: must be soft, without a grace period", p)
		}
		list = append(list, demand{at, p.UID, p.Reason})
	}
	if len(list) > 1 {
		t.Errorf("at %v %d pods are asked for", at, len(list))
	}
	return list
}

// run simulates the node until a time, and returns what the plugin has asked for.
func (n *node) run(t testing.TB, until time.Duration) (list []demand) {
	n.begin()
	round, call := time.Duration(0), 3*time.Second
	for round <= until || call <= until {
		if call < round {
			list = append(list, n.call(t, call)...)
			call += callPeriod
			continue
		}
		n.round(round)
		next := n.rules.Timing.Period
		if sooner := n.last.Decision.SyncAfter; sooner > 0 {
			next = min(next, sooner)
		}
		round += next
	}
	return list
}

func (n *node) round(at time.Duration) {
	s := n.snapshot(at)
	n.last = &eviction.Round{Snapshot: s}
	n.last.Decision, n.state = policy.Decide(s, &n.rules, n.state)
	if n.observe != nil {
		n.observe(at)
	}
}

// crossing returns when less than the threshold is available, until that time.
func (n *node) crossing(until time.Duration) time.Duration {
	n.begin()
	for at := time.Duration(0); at < until; at += 100 * time.Millisecond {
		if n.snapshot(at).Signals[snapshot.MemoryAvailable].Available < 100*mi {
			return at
		}
	}
	return until
}

// Other answers of the plugin are empty: it has no threshold.
func TestThePluginHasNoThreshold(t *testing.T) {
	p := New(nil)
	met, err := p.ThresholdMet(context.Background(), &plugin.View{})
	if err != nil || met == nil || met.Kind != arbiter.NotMet || met.Condition != nil {
		t.Errorf("%+v, %v", met, err)
	}
	q := arbiter.Question{Plugin: Name, TopN: 3}
	reply, err := p.TopEvictionPods(context.Background(), &plugin.View{}, q)
	if err != nil || reply == nil || len(reply.Pods) != 0 || reply.Question.TopN != 3 {
		t.Errorf("%+v, %v", reply, err)
	}
}
