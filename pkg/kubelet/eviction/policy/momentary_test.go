package policy

import (
	"fmt"
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

// Pods have used much since the last sample, a few seconds ago, and stand still now; others grow, but slowly enough.
// That the former have used up so much does not make more of them victims, nor one of higher priority.
func TestBurstsAreOver(t *testing.T) {
	for replicas, most := range map[int]int{2: 1, 3: 1, 5: 2} {
		w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "100Mi")), smallPods(3)...)
		w.pods = append(w.pods, spec{name: "leak", memory: 20 * mi})
		for i := range replicas {
			w.pods = append(w.pods, spec{name: fmt.Sprintf("new-%d", i), memory: 5 * mi, request: 20 * mi})
		}
		w.available(snapshot.MemoryAvailable, 99*mi+int64(replicas)*500*mi)
		d := w.afterBursts(99*mi, map[string]int64{"new": 500 * mi}, map[string]int64{"leak": 2 * mi})
		if len(d.Victims) > most {
			t.Errorf("%d replicas: victims %v, want %d at most", replicas, names(d.Victims), most)
		}
	}
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), spec{name: "low-0", memory: 300 * mi},
		spec{name: "low-1", memory: 300 * mi}, spec{name: "high", priority: 1000, memory: 100 * mi})
	w.available(snapshot.MemoryAvailable, 4*gi)
	d := w.afterBursts(gi-mi, map[string]int64{"low": 600 * mi, "high": 1872 * mi}, map[string]int64{"low": 100 * mi})
	if got := names(d.Victims); slices.Contains(got, "high") {
		t.Errorf("victims %v, want none of higher priority", got)
	}
}

// afterBursts takes a sample, and decides six seconds later, when so much is available: pods whose names begin so have
// used as much since, and grow as fast in the last second; the others stand still.
func (w *world) afterBursts(available int64, used, grows map[string]int64) Decision {
	w.rules.Fence = true
	w.after(time.Second)
	w.now = w.now.Add(6 * time.Second)
	for i := range w.pods {
		for prefix, amount := range used {
			if strings.HasPrefix(w.pods[i].name, prefix) {
				w.pods[i].memory += amount
			}
		}
	}
	s := w.available(snapshot.MemoryAvailable, available).snapshot()
	s.MemoryRate = &snapshot.Rate{Window: time.Second}
	for i := range s.Pods {
		s.Pods[i].MemoryRate = &snapshot.Rate{Window: time.Second, Still: true}
		for prefix, rate := range grows {
			if strings.HasPrefix(s.Pods[i].Name, prefix) {
				s.Pods[i].MemoryRate = &snapshot.Rate{PerSecond: snapshot.Bytes(rate), Window: time.Second}
				s.MemoryRate.PerSecond += snapshot.Bytes(rate)
			}
		}
	}
	s.LongMemoryRate = s.MemoryRate
	d, _ := Decide(s, w.rules, w.state)
	return d
}

// Pods above their requests are evicted first that use up what is left, 97 MiB, before a kill takes effect, 1.5 s
// later: as many that the others do not, or those that account for most of the growth, or for theirs if it is at least
// half of all. There are none if what is left lasts for longer.
func TestPodsThatUseUpWhatIsLeft(t *testing.T) {
	big, leak, slow := grower{"big", 0, true}, grower{"leak", 20, true}, grower{"slow", 1, true}
	hog, second := grower{"hog", 100, true}, grower{"second", 80, true}
	modest, starter := grower{"modest", 100, false}, grower{"starter", 70, false}
	replicas := slices.Repeat([]grower{{"replica", 7, true}}, 10)
	for _, c := range []struct {
		list   []grower
		system float64
		want   string
	}{
		{[]grower{big, hog, leak, slow}, 0, "hog"},
		{[]grower{big, second, hog, leak}, 0, "hog, second"},
		{[]grower{leak, second, hog, {"more", 50, true}}, 0, "hog, second, more"},
		{[]grower{big, hog, {"other", 90, true}}, 0, "hog, other"},
		{[]grower{big, hog, modest}, 0, "hog"},
		{[]grower{big, hog, modest, starter}, 0, ""},
		{[]grower{big, {"fast", 400, true}, starter}, 0, "fast"},
		{[]grower{big, {"fast", 200, true}, {"second", 35, true}, starter}, 0, "fast, second"},
		{[]grower{big, {"fast", 200, true}, second, modest}, 0, "fast, second"},
		{[]grower{big, hog, starter}, 0, "hog"},
		{[]grower{big, modest}, 0, ""},
		{[]grower{big, leak}, 0, ""},
		{[]grower{big, hog}, 2000, ""},
		{replicas, 0, ""},
	} {
		var list []candidate
		total := c.system * float64(mi)
		for _, g := range c.list {
			list = append(list, g.candidate())
			total += g.growth * float64(mi)
		}
		pace := pacing{available: 97 * mi, lately: total}
		var got []string
		for _, victim := range pace.exhausting(list, 3*time.Second/2, 3*time.Second/2) {
			got = append(got, victim.pod.Name)
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("of %v: %q, want %q", c.list, got, c.want)
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
	return candidate{pod: pod, growth: &r, usage: mi, known: true, first: g.aboveRequest}
}

// decideLately decides about a node that has crossed its threshold, 100 MiB, and has so much left, while pods grow.
func decideLately(t *testing.T, left int64, rates map[string]int64, pods ...spec) Decision {
	t.Helper()
	rules := rulesOf(threshold(snapshot.MemoryAvailable, "100Mi"))
	rules.Fence = true
	w := newWorld(t, rules, pods...)
	w.available(snapshot.MemoryAvailable, gi).after(time.Second)
	w.available(snapshot.MemoryAvailable, left).now = w.now.Add(time.Second)
	s := w.snapshot()
	rate := func(perSecond int64) *snapshot.Rate {
		return &snapshot.Rate{PerSecond: snapshot.Bytes(perSecond), Window: 20 * time.Millisecond}
	}
	var all int64
	for i := range s.Pods {
		grows := rates[s.Pods[i].Name]
		s.Pods[i].MemoryRate = rate(grows)
		all += grows
	}
	s.MemoryRate, s.LongMemoryRate = rate(all), rate(all)
	d, _ := Decide(s, w.rules, recoded(t, w.state))
	return d
}

// A hog with 8 GiB is fenced. What it releases covers all that is missing until a kill takes effect, with the growth of
// the pod beside it that is within its request: no idle pod has to go, which would end no sooner.
func TestHogThatCoversBesideAGrowerWithinItsRequest(t *testing.T) {
	for _, c := range []struct{ left, big, hog, within int64 }{{12, 20, 60, 55}, {9, 20, 60, 40}, {60, 100, 300, 250}} {
		d := decideLately(t, c.left*mi, map[string]int64{"hog": c.hog * mi, "within": c.within * mi},
			spec{name: "big", memory: c.big * gi}, spec{name: "hog", memory: 8 * gi},
			spec{name: "within", memory: 50 * mi, request: 16 * gi})
		if got := fmt.Sprint(names(d.Victims)); got != "[hog]" {
			t.Errorf("%+v: victims %s, want [hog]", c, got)
		}
	}
}

// Nearly nothing is left, and pods fluctuate by much less than a tenth of what a hog grows by, which uses too little to
// cover what is missing: an idle pod stays nevertheless.
func TestHogBesidePodsThatFluctuate(t *testing.T) {
	for _, c := range []struct{ left, big, uses, hog, noise int64 }{
		{0, 20, 2500, 60 * mi, 4096}, {0, 20, 5, 60 * mi, 4096}, {mi, 20, 2500, 60 * mi, 3 * mi / 2},
		{4 * mi, 100, 2500, 300 * mi, 6 * mi}, {4 * mi, 100, 5, 300 * mi, 6 * mi},
	} {
		pods := []spec{{name: "big", memory: c.big * gi}, {name: "hog", memory: c.uses * mi}}
		rates := map[string]int64{"hog": c.hog}
		for i := range 3 {
			small := spec{name: fmt.Sprintf("small-%d", i), memory: 20 * mi, request: 40 * mi}
			pods, rates[small.name] = append(pods, small), c.noise
		}
		d := decideLately(t, c.left, rates, pods...)
		if got := fmt.Sprint(names(d.Victims)); got != "[hog]" {
			t.Errorf("%+v: victims %s, want [hog]", c, got)
		}
	}
}
