package policy

import (
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// momentaryWorld decides about a node that has crossed its threshold with rates of the last moments, in MiB per second;
// no sample shows any growth.
func momentaryWorld(t *testing.T, node int64, pods map[string]int64) Decision {
	t.Helper()
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")), smallPods(3)...)
	w.pods = append(w.pods, spec{name: "hog", memory: mi}, spec{name: "other", memory: 2 * mi})
	w.available(snapshot.MemoryAvailable, gi).after(time.Second)
	w.available(snapshot.MemoryAvailable, 99*mi).now = w.now.Add(time.Second)
	rateOf := func(n int64) *snapshot.Rate {
		return &snapshot.Rate{PerSecond: snapshot.Bytes(n * mi), Window: 10 * time.Millisecond}
	}
	s := w.snapshot()
	s.MemoryRate = rateOf(node)
	for i := range s.Pods {
		if n, ok := pods[s.Pods[i].Name]; ok {
			s.Pods[i].MemoryRate = rateOf(n)
		}
	}
	d, _ := Decide(s, w.rules, recoded(t, w.state))
	return d
}

// TestMomentaryGrowth: the pod that grows is evicted, though others rank before it. Growth that another pod makes up
// for, or that the node does not have, is none.
func TestMomentaryGrowth(t *testing.T) {
	for name, test := range map[string]struct {
		node int64
		pods map[string]int64
		want []string
	}{
		"a burst":                        {400, map[string]int64{"hog": 400}, []string{"hog"}},
		"two of them":                    {800, map[string]int64{"hog": 400, "other": 400}, []string{"other", "hog"}},
		"another pod shrinks as fast":    {0, map[string]int64{"hog": 400, "other": -400}, []string{"other"}},
		"the node has more than before":  {-50, map[string]int64{"hog": 400}, []string{"other"}},
		"the system grows, and no pod":   {400, nil, []string{"other"}},
		"the system, and a pod a little": {400, map[string]int64{"hog": 1}, []string{"hog"}},
	} {
		d := momentaryWorld(t, test.node, test.pods)
		if got := names(d.Victims); !slices.Equal(got, test.want) {
			t.Errorf("%s: victims %v, want %v; %+v", name, got, test.want, d.Needs)
		}
	}
}
