package policy

import (
	"slices"
	"strings"
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

// Of the chosen pods those are evicted first that use up what is left, 97 MiB, before a kill takes effect, 1.5 s later.
// A pod that others do not leave enough time for is none of them, nor are pods within their requests.
func TestPodsThatUseUpWhatIsLeft(t *testing.T) {
	big, leak, slow := grower{"big", 0, true}, grower{"leak", 20, true}, grower{"slow", 1, true}
	hog, second := grower{"hog", 100, true}, grower{"second", 80, true}
	modest, other := grower{"modest", 100, false}, grower{"other", 90, true}
	for name, c := range map[string]struct{ chosen, others []grower }{
		"hog":               {[]grower{big, hog}, []grower{leak, slow}},
		"hog, second":       {[]grower{big, second, hog}, []grower{leak}},
		"hog, second, leak": {[]grower{leak, second, hog}, []grower{{"more", 50, true}}},
		"":                  {[]grower{big, hog}, []grower{other}},
		" ":                 {[]grower{big, modest}, nil},
	} {
		var chosen, list []candidate
		for _, g := range c.chosen {
			chosen = append(chosen, g.candidate())
		}
		list = slices.Clone(chosen)
		for _, g := range c.others {
			list = append(list, g.candidate())
		}
		pace := pacing{available: 97 * mi}
		var got []string
		for _, victim := range pace.exhausting(chosen, list, 3*time.Second/2) {
			got = append(got, victim.pod.Name)
		}
		if strings.Join(got, ", ") != strings.TrimSpace(name) {
			t.Errorf("%v, want %q", got, name)
		}
	}
}

// grower is a candidate that grows by MiB in a second.
type grower struct {
	name         string
	growth       float64
	aboveRequest bool
}

func (g grower) candidate() candidate {
	r := unmeasured
	r[momentary] = g.growth * float64(mi)
	pod := &snapshot.Pod{Facts: &snapshot.Facts{Name: g.name}}
	return candidate{pod: pod, growth: &r, known: true, first: g.aboveRequest}
}
