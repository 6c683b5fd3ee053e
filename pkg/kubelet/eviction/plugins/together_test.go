package plugins

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/systemmemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// memoryOfNode is what the simulated node has, memoryThreshold what must be available.
	memoryOfNode, memoryThreshold = int64(16 << 30), int64(1 << 30)
	// simulatedTime is how long it runs.
	simulatedTime = 3 * time.Minute
)

// growing is a pod that uses memory from its start on, and grows until it has twice as much as at its start.
type growing struct {
	object *v1.Pod
	facts  *snapshot.Facts
	start  int64
	rate   int64
	grace  time.Duration
}

func (g *growing) memory(at time.Duration) int64 {
	return min(g.start+int64(at.Seconds())*g.rate, 2*g.start)
}

// simulated is a node whose pods are stopped by the decisions of policy. With plugins, all those in the agent that read
// memory are asked, and the arbiter settles their answers.
type simulated struct {
	*recordedNode
	t       *testing.T
	pods    map[types.UID]*growing
	at      time.Duration
	flight  []snapshot.InFlight
	release time.Time
	state   policy.State
	rules   policy.Rules
	set     *Set
	settled arbiter.State
	// wanted are the pods that plugins have asked for, victims are those that were evicted, in this order.
	wanted  map[types.UID]bool
	victims []types.UID
}

func (s *simulated) now() time.Time { return time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC).Add(s.at) }

func (s *simulated) available() int64 {
	used := int64(0)
	for _, pod := range s.pods {
		used += pod.memory(s.at)
	}
	return memoryOfNode - used
}

// Zones implements plugins.Zones.
func (s *simulated) Zones() ([]numamemory.Zone, error) {
	return []numamemory.Zone{{Node: 0, Total: memoryOfNode, Free: max(0, s.available()), Min: 1 << 20, Low: 2 << 20,
		InactiveFile: 8 << 30}}, nil
}

// ByNode implements plugins.NUMAMemory.
func (s *simulated) ByNode(pods []*v1.Pod) (map[types.UID]map[int]int64, error) {
	list := map[types.UID]map[int]int64{}
	for _, pod := range pods {
		list[pod.UID] = map[int]int64{0: s.pods[pod.UID].memory(s.at)}
	}
	return list, nil
}

// Bytes implements plugins.Resident.
func (s *simulated) Bytes(pods []*v1.Pod) (map[types.UID]int64, error) { return s.Usage(pods) }

// Usage implements plugins.PodMemory.
func (s *simulated) Usage(pods []*v1.Pod) (map[types.UID]int64, error) {
	list := map[types.UID]int64{}
	for _, pod := range pods {
		list[pod.UID] = s.pods[pod.UID].memory(s.at)
	}
	return list, nil
}

// Node implements plugins.NodeMemory.
func (s *simulated) Node() (systemmemory.Node, error) {
	return systemmemory.Node{
		Free: new(max(0, s.available())), Total: new(memoryOfNode), ScaleFactor: new(int64(300)),
	}, nil
}

func newSimulated(t *testing.T, seed uint64, enabled []string) *simulated {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 17))
	s := &simulated{recordedNode: newRecordedNode(), t: t, pods: map[types.UID]*growing{}, wanted: map[types.UID]bool{}}
	c := v1alpha1.Default()
	s.rules = policy.Rules{ReportMemoryGrowth: true, Thresholds: []policy.Threshold{{Signal: snapshot.MemoryAvailable,
		Value: evictionapi.ThresholdValue{Quantity: resource.NewQuantity(memoryThreshold, resource.BinarySI)}}},
		Timing: policy.Timing{Period: 10 * time.Second, KillTime: c.Eviction.KillTime.Duration,
			Settling: c.Eviction.Settling.Duration, Patience: c.Eviction.Patience.Duration}}
	for i := range 10 {
		name := fmt.Sprintf("pod-%d", i)
		start := (64 + random.Int64N(1500)) << 20
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID(name),
			Annotations: map[string]string{arbiter.QoSLevelKey: []string{"shared_cores", "reclaimed_cores"}[random.IntN(2)]}}}
		pod.Spec.Priority = new(int32(random.IntN(3)))
		pod.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
			v1.ResourceMemory: *resource.NewQuantity(start*(9+random.Int64N(14))/10, resource.BinarySI)}}}}
		s.pods[pod.UID] = &growing{object: pod, facts: snapshot.NewFacts(pod, true), start: start,
			rate: random.Int64N(40 << 20), grace: time.Duration(1+random.IntN(20)) * time.Second}
	}
	if len(enabled) == 0 {
		return s
	}
	config := s.config()
	config.Zones, config.NUMAMemory, config.NodeMemory, config.PodMemory, config.Resident, config.CPU =
		s, s, s, s, s, recordedCPU{s.recordedNode}
	var err error
	if s.set, err = New(config); err != nil {
		t.Fatal(err)
	}
	return s
}

// run plays the node, a second in each step. Plugins are asked each fifth.
func (s *simulated) run(enabled []string) {
	var requests []snapshot.Request
	var last *eviction.Round
	next := time.Duration(0)
	for s.at = 0; s.at < simulatedTime; s.at += time.Second {
		s.stop()
		if last != nil && len(enabled) > 0 && s.at%(5*time.Second) == 0 {
			requests = s.ask(enabled, last)
		}
		if s.at < next {
			continue
		}
		snap := s.observe(requests)
		last = &eviction.Round{Snapshot: snap, AllPods: true}
		last.Decision, s.state = policy.Decide(snap, &s.rules, s.state)
		next = s.at + s.rules.Timing.Period
		if sooner := last.Decision.SyncAfter; sooner > 0 {
			next = min(next, s.at+sooner)
		}
		for i := range last.Decision.Victims {
			s.evict(&last.Decision.Victims[i])
		}
	}
}

// stop lets pods end whose grace periods are over. The next round finds them stopped, and the one after that gone.
func (s *simulated) stop() {
	s.flight = slices.DeleteFunc(s.flight, func(f snapshot.InFlight) bool {
		if f.State == snapshot.Stopped {
			s.release = s.now()
		}
		return f.State == snapshot.Stopped
	})
	for i := range s.flight {
		if f := &s.flight[i]; !s.now().Before(f.Deadline) {
			f.State, f.Changed = snapshot.Stopped, s.now()
			delete(s.pods, f.UID)
		}
	}
}

func (s *simulated) evict(v *policy.Victim) {
	if v.Hasten {
		return
	}
	if slices.Contains(s.victims, v.Pod.UID) {
		s.t.Errorf("%s is evicted twice", v.Pod.UID)
	}
	s.victims = append(s.victims, v.Pod.UID)
	s.flight = append(s.flight, snapshot.InFlight{UID: v.Pod.UID, Started: s.now(), Changed: s.now(),
		Deadline: s.now().Add(s.pods[v.Pod.UID].grace), Signal: v.Cause.Signal, Hard: v.Cause.Hard(),
		Requested: v.Cause.Kind == policy.PluginRequest, Expected: v.Expected})
}

func (s *simulated) observe(requests []snapshot.Request) *snapshot.Snapshot {
	snap := &snapshot.Snapshot{Taken: s.now(), WallTime: s.now(), Signals: snapshot.Unobserved(),
		InFlight: slices.Clone(s.flight), LastRelease: s.release, Requests: requests, Layout: snapshot.Layout{Known: true}}
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		pod := s.pods[uid]
		used := snapshot.Known(snapshot.Bytes(pod.memory(s.at)), snap.WallTime)
		snap.Pods = append(snap.Pods, snapshot.Pod{Facts: pod.facts, Images: snapshot.Unknown,
			Cgroup: &snapshot.Memory{WorkingSet: used}})
	}
	snap.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: s.available(), Capacity: memoryOfNode}
	return snap
}

// ask calls the plugins as the driver does, and settles their answers and replies.
func (s *simulated) ask(enabled []string, last *eviction.Round) []snapshot.Request {
	ctx := context.Background()
	v := &plugin.View{Taken: s.now(), Node: last}
	var pods []arbiter.Pod
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		pod := s.pods[uid]
		v.Pods = append(v.Pods, pod.object)
		inFlight := slices.ContainsFunc(s.flight, func(f snapshot.InFlight) bool { return f.UID == uid })
		pods = append(pods, arbiter.Pod{UID: uid, Priority: *pod.object.Spec.Priority, GraceSeconds: 30,
			QoSLevel: pod.object.Annotations[arbiter.QoSLevelKey], InFlight: inFlight})
	}
	limits := &arbiter.Rules{Burst: 3, MaxInFlight: 10, MaxGracePeriodSeconds: 600}
	answers := arbiter.Answers{Active: enabled, Begun: true}
	for _, name := range enabled {
		a := arbiter.Answer{Plugin: name, Asked: s.now()}
		a.Demand, _ = s.set.plugins[name].EvictPods(ctx, v) // What fails is missing.
		a.Threshold, _ = s.set.plugins[name].ThresholdMet(ctx, v)
		answers.Plugins = append(answers.Plugins, a)
	}
	outcome, state := arbiter.Settle(answers, pods, limits, s.settled, s.now())
	replies := arbiter.Answers{Active: enabled}
	for _, q := range outcome.Questions {
		asked := *v
		asked.Pods = slices.DeleteFunc(slices.Clone(v.Pods), func(pod *v1.Pod) bool {
			return slices.ContainsFunc(s.flight, func(f snapshot.InFlight) bool { return f.UID == pod.UID })
		})
		if reply, err := s.set.plugins[q.Plugin].TopEvictionPods(ctx, &asked, q); err == nil {
			replies.Replies = append(replies.Replies, *reply)
		}
	}
	outcome, s.settled = arbiter.Settle(replies, pods, limits, state, s.now())
	for i := range outcome.Requests {
		s.wanted[outcome.Requests[i].UID] = true
	}
	return outcome.Requests
}

// TestTogetherWithTheSignals plays the same node with and without plugins, of which one or more are enabled: with them
// there are never more victims than without, plus those that plugins have asked for; only pods that plugins have asked
// for are victims beside those of the signals; and no pod is a victim twice.
func TestTogetherWithTheSignals(t *testing.T) {
	crossed, both, fewer := 0, 0, 0
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 1))
		enabled := slices.DeleteFunc(v1alpha1.InTreePlugins(), func(name string) bool {
			// Nothing is known of CPUs, and those two would keep the node from its threshold.
			early := name == v1alpha1.RSSOverusePlugin || name == v1alpha1.NUMAMemoryPressurePlugin
			return name == v1alpha1.CPUPressurePlugin || early && random.IntN(4) > 0
		})
		alone := newSimulated(t, seed, nil)
		alone.run(nil)
		together := newSimulated(t, seed, enabled)
		together.run(enabled)
		if len(together.victims) > len(alone.victims)+len(together.wanted) {
			t.Fatalf("seed %d: victims %v, without plugins %v; plugins have asked for %v", seed, together.victims,
				alone.victims, together.wanted)
		}
		byNode := 0
		for _, uid := range together.victims {
			if !together.wanted[uid] {
				byNode++
			}
		}
		if byNode > len(alone.victims) {
			t.Fatalf("seed %d: the node has chosen %d, without plugins %v", seed, byNode, alone.victims)
		}
		if len(alone.victims) > 0 {
			crossed++
			if len(together.wanted) > 0 && byNode > 0 {
				both++
			}
			if byNode < len(alone.victims) {
				fewer++
			}
		}
	}
	t.Logf("of 100 nodes %d met the threshold without plugins; with them %d had victims of both, %d fewer of the node",
		crossed, both, fewer)
	if crossed < 20 || both < 5 || fewer < 10 {
		t.Error("the sequences exercise too little")
	}
}
