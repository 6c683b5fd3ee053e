package plan

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
)

var classes = []v1.PodQOSClass{v1.PodQOSBestEffort, v1.PodQOSBurstable, v1.PodQOSGuaranteed}

func candidates(most int) *rapid.Generator[[]Candidate] {
	return rapid.Custom(func(t *rapid.T) []Candidate {
		out := make([]Candidate, rapid.IntRange(0, most).Draw(t, "pods"))
		for i := range out {
			out[i] = Candidate{
				UID:      types.UID(fmt.Sprintf("uid-%02d", i)),
				Priority: rapid.SampledFrom([]int32{-10, 0, 0, 1000}).Draw(t, "priority"),
				QOS:      rapid.SampledFrom(classes).Draw(t, "qos"),
				Requests: map[v1.ResourceName]int64{
					v1.ResourceCPU:    rapid.Int64Range(0, 8).Draw(t, "cpu"),
					v1.ResourceMemory: rapid.Int64Range(0, 8).Draw(t, "memory"),
					v1.ResourcePods:   1,
				},
				Terminating: rapid.IntRange(0, 9).Draw(t, "terminating") == 0,
			}
		}
		return out
	})
}

func needs() *rapid.Generator[Need] {
	return rapid.Custom(func(t *rapid.T) Need {
		return Need{
			v1.ResourceCPU:    rapid.Int64Range(0, 20).Draw(t, "cpu"),
			v1.ResourceMemory: rapid.Int64Range(0, 20).Draw(t, "memory"),
			v1.ResourcePods:   rapid.Int64Range(0, 2).Draw(t, "pods"),
		}
	})
}

// bruteForce tries every set. It shares the order with Choose, nothing else.
func bruteForce(p *problem) []int {
	var best []int
	found := false
	for mask := range 1 << len(p.pods) {
		var set []int
		rest := slices.Clone(p.need)
		for i := range p.pods {
			if mask&(1<<i) != 0 {
				set = append(set, i)
				for k, a := range p.pods[i].amount {
					rest[k] -= a
				}
			}
		}
		if p.covered(rest) && (!found || p.compare(set, best) < 0) {
			best, found = set, true
		}
	}
	return best
}

func TestChooseIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		need, pods := needs().Draw(t, "need"), candidates(10).Draw(t, "candidates")
		p := newProblem(need, pods)
		got, ok := Choose(need, pods)
		if ok != p.feasible() {
			t.Fatalf("Choose ok = %v, but feasible = %v", ok, p.feasible())
		}
		if !ok {
			return
		}
		var want []types.UID
		for _, i := range bruteForce(p) {
			want = append(want, p.pods[i].uid)
		}
		if !slices.Equal(got.Stop, want) {
			t.Fatalf("Choose stops %v, the optimum is %v", got.Stop, want)
		}
	})
}

func TestChooseDoesNotDependOnTheOrderOfItsInput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		need, pods := needs().Draw(t, "need"), candidates(12).Draw(t, "candidates")
		one, ok1 := Choose(need, pods)
		two, ok2 := Choose(need, rapid.Permutation(pods).Draw(t, "permuted"))
		if ok1 != ok2 || !slices.Equal(one.Stop, two.Stop) || !slices.Equal(one.Await, two.Await) {
			t.Fatalf("%v %v, permuted %v %v", one, ok1, two, ok2)
		}
	})
}

func TestChooseBeyondTheExactLimitIsMinimalAndCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		need, pods := needs().Draw(t, "need"), candidates(120).Draw(t, "candidates")
		got, ok := Choose(need, pods)
		if !ok {
			return
		}
		p := newProblem(need, pods)
		left := func(without types.UID) []int64 {
			rest := slices.Clone(p.need)
			for _, it := range p.pods {
				if it.uid == without || !slices.Contains(got.Stop, it.uid) {
					continue
				}
				for k, a := range it.amount {
					rest[k] -= a
				}
			}
			return rest
		}
		if !p.covered(left("")) {
			t.Fatalf("stopping %v leaves a need of %v", got.Stop, left(""))
		}
		for _, uid := range got.Stop {
			if p.covered(left(uid)) {
				t.Fatalf("%s of %v need not be stopped", uid, got.Stop)
			}
		}
	})
}

func TestChoose(t *testing.T) {
	cpu := func(milli int64) map[v1.ResourceName]int64 {
		return map[v1.ResourceName]int64{v1.ResourceCPU: milli, v1.ResourcePods: 1}
	}
	cpuAndMemory := func(milli, bytes int64) map[v1.ResourceName]int64 {
		return map[v1.ResourceName]int64{v1.ResourceCPU: milli, v1.ResourceMemory: bytes}
	}
	for name, tc := range map[string]struct {
		need        Need
		pods        []Candidate
		stop, await []types.UID
		impossible  bool
	}{
		"D18: priority before QoS class": {
			need: Need{v1.ResourceCPU: 100},
			pods: []Candidate{
				{UID: "burstable-1e9", Priority: 1e9, QOS: v1.PodQOSBurstable, Requests: cpu(100)},
				{UID: "guaranteed-low", Priority: -1000, QOS: v1.PodQOSGuaranteed, Requests: cpu(100)},
			},
			stop: []types.UID{"guaranteed-low"},
		},
		"D21: least loss of what is needed": {
			need: Need{v1.ResourceCPU: 100},
			pods: []Candidate{
				{UID: "a-8-cores", QOS: v1.PodQOSBurstable, Requests: cpuAndMemory(8000, 10)},
				{UID: "b-100m", QOS: v1.PodQOSBurstable, Requests: cpuAndMemory(100, 20)},
			},
			stop: []types.UID{"b-100m"},
		},
		"D21: resources that are being released already": {
			need: Need{v1.ResourceCPU: 100},
			pods: []Candidate{
				{UID: "healthy", Priority: -5, Requests: cpu(100)},
				{UID: "terminating", Priority: 100, Requests: cpu(100), Terminating: true},
			},
			await: []types.UID{"terminating"},
		},
		"several small ones of lower priority rather than one of higher priority": {
			need: Need{v1.ResourceCPU: 300},
			pods: []Candidate{
				{UID: "big", Priority: 10, Requests: cpu(1000)},
				{UID: "a", Requests: cpu(100)}, {UID: "b", Requests: cpu(100)}, {UID: "c", Requests: cpu(100)},
			},
			stop: []types.UID{"a", "b", "c"},
		},
		"fewest of equals": {
			need: Need{v1.ResourceCPU: 300},
			pods: []Candidate{
				{UID: "a", Requests: cpu(100)}, {UID: "b", Requests: cpu(100)},
				{UID: "c", Requests: cpu(100)}, {UID: "d", Requests: cpu(400)},
			},
			stop: []types.UID{"d"},
		},
		"not possible": {
			need: Need{v1.ResourceCPU: 300}, pods: []Candidate{{UID: "a", Requests: cpu(100)}}, impossible: true,
		},
		"nothing needed":      {need: Need{}, pods: []Candidate{{UID: "a", Requests: cpu(100)}}},
		"negative and absent": {need: Need{v1.ResourceCPU: -5, v1.ResourceMemory: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := Choose(tc.need, tc.pods)
			if ok == tc.impossible || !slices.Equal(got.Stop, tc.stop) || !slices.Equal(got.Await, tc.await) {
				t.Errorf("Choose = %+v, %v; want stop %v, await %v, possible %v", got, ok, tc.stop, tc.await, !tc.impossible)
			}
		})
	}
}

func BenchmarkChoose500(b *testing.B) {
	pods := make([]Candidate, 500)
	for i := range pods {
		pods[i] = Candidate{
			UID: types.UID(fmt.Sprintf("uid-%03d", i)), Priority: int32(i % 7), QOS: v1.PodQOSBurstable,
			Requests: map[v1.ResourceName]int64{
				v1.ResourceCPU: int64(50 + i%13*25), v1.ResourceMemory: int64(64+i%17*32) << 20, v1.ResourcePods: 1,
			},
		}
	}
	need := Need{v1.ResourceCPU: 2500, v1.ResourceMemory: 3 << 30, v1.ResourcePods: 1}
	for b.Loop() {
		if _, ok := Choose(need, pods); !ok {
			b.Fatal("no plan")
		}
	}
}
