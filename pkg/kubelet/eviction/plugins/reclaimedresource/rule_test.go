package reclaimedresource

import (
	"math"
	"math/rand"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
)

var settings = Settings{Ratio: rule.Percent(500), MetFor: 15 * time.Second, Grace: time.Minute}

// pod is a reclaimed pod with two containers, which together request that.
func pod(name string, milliCPU, memory int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Annotations: map[string]string{arbiter.QoSLevelKey: arbiter.ReclaimedCores},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Resources: requests(milliCPU-1, memory)}, {Resources: requests(1, 0)}}},
	}
}

func requests(milliCPU, memory int64) v1.ResourceRequirements {
	return v1.ResourceRequirements{Requests: list(milliCPU, memory)}
}

// list has the resources that are not negative.
func list(milliCPU, memory int64) v1.ResourceList {
	l := v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}
	for name, n := range map[v1.ResourceName]int64{MilliCPU: milliCPU, Memory: memory} {
		if n >= 0 {
			l[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	return l
}

func shared(p *v1.Pod) *v1.Pod {
	p.Annotations = nil
	return p
}

func prioritized(p *v1.Pod, priority int32) *v1.Pod {
	p.Spec.Priority = &priority
	return p
}

// TestThreshold has what is requested at, just below and just above the threshold, and what is known.
func TestThreshold(t *testing.T) {
	const gi = 1 << 30
	for name, tc := range map[string]struct {
		pods        []*v1.Pod
		ending      map[types.UID]bool
		allocatable v1.ResourceList
		scope       v1.ResourceName
		top         []types.UID
	}{
		"at the threshold": {pods: []*v1.Pod{pod("a", 3000, 0), pod("b", 2000, 0)}, allocatable: list(1000, -1)},
		"just below":       {pods: []*v1.Pod{pod("a", 3000, 0), pod("b", 1999, 0)}, allocatable: list(1000, -1)},
		"just above": {pods: []*v1.Pod{pod("a", 3000, 0), pod("b", 2001, 0)}, allocatable: list(1000, -1),
			scope: MilliCPU, top: []types.UID{"a", "b"}},
		"memory at": {pods: []*v1.Pod{pod("a", 1, 5*gi)}, allocatable: list(-1, gi)},
		"memory just above": {pods: []*v1.Pod{pod("a", 1, 5*gi+1)}, allocatable: list(-1, gi), scope: Memory,
			top: []types.UID{"a"}},
		"nothing left": {pods: []*v1.Pod{pod("a", 1, 0), pod("b", 2, 0)}, allocatable: list(0, 0), scope: MilliCPU,
			top: []types.UID{"b", "a"}},
		"less than nothing": {pods: []*v1.Pod{pod("a", 1, 0)},
			allocatable: v1.ResourceList{MilliCPU: resource.MustParse("-3")}, scope: MilliCPU, top: []types.UID{"a"}},
		"nothing requested": {pods: []*v1.Pod{{}}, allocatable: list(0, 0)},
		"unknown":           {pods: []*v1.Pod{pod("a", 1<<40, 1<<60)}, allocatable: list(-1, -1)},
		"one unknown":       {pods: []*v1.Pod{pod("a", 1<<40, 5*gi)}, allocatable: list(-1, gi)},
		"no pods":           {allocatable: list(0, 0)},
		"pods of others": {pods: []*v1.Pod{shared(pod("a", 1<<40, 1<<60)), pod("b", 5000, 0)}, allocatable: list(1000,
			gi)},
		"pods that end": {pods: []*v1.Pod{pod("a", 9000, 0), pod("b", 5000, 0)}, ending: map[types.UID]bool{"a": true},
			allocatable: list(1000, gi)},
		"also without them": {pods: []*v1.Pod{pod("a", 9000, 0), pod("b", 5001, 0)}, ending: map[types.UID]bool{"a": true},
			allocatable: list(1000, gi), scope: MilliCPU, top: []types.UID{"b"}},
		"equal requests": {pods: []*v1.Pod{pod("b", 5000, 0), pod("a", 5000, 0)}, allocatable: list(1000, gi),
			scope: MilliCPU, top: []types.UID{"a", "b"}},
		"priority is second": {pods: []*v1.Pod{prioritized(pod("low", 5000, 0), -1), prioritized(pod("large", 5001, 0), 9)},
			allocatable: list(1000, gi), scope: MilliCPU, top: []types.UID{"large", "low"}},
		"both, CPU is worse": {pods: []*v1.Pod{pod("a", 7000, 6*gi)}, allocatable: list(1000, gi), scope: MilliCPU,
			top: []types.UID{"a"}},
		"both, memory is worse": {pods: []*v1.Pod{pod("a", 7000, 8*gi), pod("b", 1, 0)}, allocatable: list(1000, gi),
			scope: Memory, top: []types.UID{"a"}},
		"both alike": {pods: []*v1.Pod{pod("a", 7000, 7*gi)}, allocatable: list(1000, gi), scope: MilliCPU,
			top: []types.UID{"a"}},
		"no memory at all": {pods: []*v1.Pod{pod("a", 7000, 1)}, allocatable: list(1000, 0), scope: Memory,
			top: []types.UID{"a"}},
		"requests overflow": {pods: []*v1.Pod{pod("a", 1, math.MaxInt64), pod("b", 1, math.MaxInt64)},
			allocatable: list(-1, gi), scope: Memory, top: []types.UID{"a", "b"}},
		"nearly everything":   {pods: []*v1.Pod{pod("a", 1, math.MaxInt64)}, allocatable: list(-1, math.MaxInt64)},
		"requests of no pods": {pods: []*v1.Pod{shared(pod("a", 9000, 0))}, allocatable: list(1, gi)},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decide(&Facts{Pods: tc.pods, Ending: tc.ending, Allocatable: tc.allocatable}, &settings)
			if got.Threshold.Scope != string(tc.scope) || !slices.Equal(got.Top, tc.top) || len(got.Pods) > 0 ||
				!slices.Equal(got.Threshold.Candidates, tc.top) {
				t.Fatalf("%+v", got)
			}
			if tc.scope == "" {
				if got.Threshold.Kind != arbiter.NotMet {
					t.Errorf("%+v", got)
				}
				return
			}
			threshold := got.Threshold
			if threshold.Kind != arbiter.Hard || threshold.LessThan || threshold.Grace != 15*time.Second ||
				*got.GraceSeconds != 60 || threshold.Observed <= threshold.Target {
				t.Errorf("%+v, grace %d", got, *got.GraceSeconds)
			}
		})
	}
}

// TestOverTime: reclaimed resources shrink under the pods and come back.
func TestOverTime(t *testing.T) {
	pods := []*v1.Pod{pod("a", 2000, 0), pod("b", 4000, 0)}
	for round, tc := range []struct {
		allocatable int64
		ending      types.UID
		want        types.UID
	}{
		{2000, "", ""}, {1200, "", ""}, {1199, "", "b"}, {1199, "b", ""}, {400, "b", ""}, {399, "b", "a"}, {-1, "b", ""},
		{399, "", "b"}, {4000, "", ""},
	} {
		ending := map[types.UID]bool{tc.ending: true}
		got := Decide(&Facts{Pods: pods, Ending: ending, Allocatable: list(tc.allocatable, -1)}, &settings)
		if (len(got.Top) == 0) != (tc.want == "") || (tc.want != "" && got.Top[0] != tc.want) {
			t.Errorf("round %d: %v, want %q", round, got.Top, tc.want)
		}
	}
}

// TestOrderOfPods: the finding does not depend on the order of pods.
func TestOrderOfPods(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 500 {
		var pods []*v1.Pod
		for i := range random.Intn(8) {
			pods = append(pods, prioritized(pod(string(rune('a'+i)), 1+random.Int63n(5), random.Int63n(5)), random.Int31n(3)))
		}
		allocatable := list(random.Int63n(5)-1, random.Int63n(5)-1)
		want := Decide(&Facts{Pods: pods, Allocatable: allocatable}, &settings)
		random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		got := Decide(&Facts{Pods: pods, Allocatable: allocatable}, &settings)
		if !slices.Equal(got.Top, want.Top) || got.Threshold.Scope != want.Threshold.Scope {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
}

// TestBothByTurns: while both thresholds are met, and one is exceeded more in one round and the other in the next, the
// first counts until it is no longer met.
func TestBothByTurns(t *testing.T) {
	pods := []*v1.Pod{pod("a", 7000, 7000)}
	var met v1.ResourceName
	for round, tc := range []struct {
		milliCPU, memory int64
		want             v1.ResourceName
	}{
		{1000, 999, Memory}, {999, 1000, Memory}, {1000, 999, Memory}, {1, -1, MilliCPU}, {1000, 1, MilliCPU},
		{1400, 1, Memory}, {1400, 1400, ""}, {1000, 999, Memory},
	} {
		found := Decide(&Facts{Pods: pods, Allocatable: list(tc.milliCPU, tc.memory), Met: met}, &settings)
		if met = v1.ResourceName(found.Threshold.Scope); met != tc.want {
			t.Errorf("round %d: %q, want %q", round, met, tc.want)
		}
	}
}
