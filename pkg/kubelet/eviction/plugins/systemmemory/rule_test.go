package systemmemory

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
)

const (
	gi = int64(1) << 30
	// total is all memory, whose ten-thousandths are whole bytes.
	total = 10_000 << 20
)

var (
	settings = Settings{
		KswapdPages: 2000, KswapdFor: 2 * time.Minute, NodeStall: 15, PodStall: 4, ReclaimedAfter: 15 * time.Second,
		AllAfter: 45 * time.Second, CoolDown: 35 * time.Second, Period: 5 * time.Second,
	}
	start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

// pods are a reclaimed pod, and shared ones, of which one uses more.
func pods() (list []*v1.Pod, usage map[types.UID]int64) {
	usage = map[types.UID]int64{"reclaimed": gi, "large": 4 * gi, "small": 2 * gi}
	for name := range usage {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: string(name), UID: name}}
		if name == "reclaimed" {
			pod.Annotations = map[string]string{arbiter.QoSLevelKey: arbiter.ReclaimedCores}
		}
		list = append(list, pod)
	}
	return list, usage
}

// step is a round at a time, in seconds from the start, with the changes to the facts before it, and the pods that may
// be evicted after it: "" for none, "r" for reclaimed ones, "all" for all, with a plus sign if the condition is
// reported.
type step struct {
	at     float64
	change func(*Facts)
	want   string
}

func calm() Node {
	return Node{Free: new(8 * gi), Total: new(int64(total)), ScaleFactor: new(int64(10)), Stolen: new(int64(0)),
		Stall: new(0.0)}
}

func stall(node float64, pods ...float64) func(*Facts) {
	return func(f *Facts) {
		f.Node.Stall, f.Stalls = &node, map[types.UID]float64{}
		for i, p := range pods {
			f.Stalls[types.UID(fmt.Sprint(i))] = p
		}
	}
}

// stallV1 has no stalls of pods.
func stallV1(node float64) func(*Facts) {
	return func(f *Facts) { f.Node.Stall, f.Stalls = &node, nil }
}

func free(bytes int64) func(*Facts) { return func(f *Facts) { f.Node.Free = &bytes } }

func stolen(pages int64) func(*Facts) { return func(f *Facts) { f.Node.Stolen = &pages } }

// kswapd are rounds each five seconds, in which it reclaims pages at a rate, from one time to another.
func kswapd(from, to float64, rate int64, want string) (list []step) {
	for at := from; at <= to; at += 5 {
		list = append(list, step{at, func(f *Facts) { f.Node.Stolen = new(*f.Node.Stolen + 5*rate) }, want})
	}
	return list
}

// TestOverTime has the figures at, just below and just above each threshold, over time.
func TestOverTime(t *testing.T) {
	nothing := func(*Facts) {}
	threshold := int64(total) * 10 / 10_000
	for name, steps := range map[string][]step{
		"calm": {{0, nothing, ""}, {5, nothing, ""}},
		"free": {
			{0, free(threshold + 1), ""}, {5, free(threshold), ""}, {10, free(threshold - 1), "r+"}, {15, free(0), "r+"},
			{60, free(0), "r+"}, {65, free(threshold), ""},
		},
		"free, other scale": {
			{0, func(f *Facts) { f.Node.ScaleFactor = new(int64(1000)); f.Node.Free = new(int64(total) / 10) }, ""},
			{5, free(total/10 - 1), "r+"}, {10, func(f *Facts) { f.Node.ScaleFactor = new(int64(0)) }, ""},
		},
		"free is unknown":  {{0, func(f *Facts) { f.Node.Free = nil }, ""}},
		"scale is unknown": {{0, func(f *Facts) { f.Node.ScaleFactor = nil; f.Node.Free = new(int64(0)) }, ""}},
		"total is unknown": {{0, func(f *Facts) { f.Node.Total = nil; f.Node.Free = new(int64(0)) }, ""}},
		"kswapd at the rate": append(append([]step{{0, nothing, ""}}, kswapd(5, 120, 2000, "")...),
			kswapd(125, 140, 2000, "r+")...),
		"kswapd just below": append([]step{{0, nothing, ""}}, kswapd(5, 300, 1999, "")...),
		"kswapd pauses": append(append(append([]step{{0, nothing, ""}}, kswapd(5, 120, 9000, "")...),
			kswapd(125, 125, 1999, "")...), kswapd(130, 245, 9000, "")...),
		"kswapd, a missing round": append(append(append([]step{{0, nothing, ""}}, kswapd(5, 60, 2000, "")...),
			step{75, func(f *Facts) { f.Node.Stolen = new(*f.Node.Stolen + 15*2000) }, ""}), kswapd(80, 120, 2000, "")...),
		"kswapd, unknown for long": append(append(append([]step{{0, nothing, ""}}, kswapd(5, 120, 2000, "")...),
			step{141, func(f *Facts) { f.Node.Stolen = new(*f.Node.Stolen + 21*2000) }, ""}), kswapd(146, 260, 2000, "")...),
		"kswapd, counter restarts": {{0, stolen(9_000_000), ""}, {5, stolen(0), ""}, {10, stolen(10_000), ""}},
		"kswapd, early rounds": {
			{0, nothing, ""}, {5, stolen(10_000), ""}, {5.1, stolen(10_001), ""}, {10, stolen(20_000), ""},
		},
		"stalls": {
			{0, stall(15, 4, 4, 4), ""}, {5, stall(15, 4, 4, 4), ""}, {14.9, stall(15, 4, 4, 4), ""},
			{15, stall(15, 4, 4, 4), "r+"}, {30, stall(15, 4, 4, 4), "r+"}, {44.9, stall(15, 4, 4, 4), "r+"},
			{45, stall(15, 4, 4, 4), "all+"}, {60, stall(15, 4, 4, 4), "all+"}, {65, stall(14.99, 4, 4, 4), ""},
			{70, stall(99, 99, 99, 99), ""}, {85, stall(99, 99, 99, 99), "r+"},
		},
		"stalls of the node just below": {{0, stall(14.99, 90, 90, 90), ""}, {15, stall(14.99, 90, 90, 90), ""}},
		"stalls of pods just below":     {{0, stall(90, 4, 4, 3.97), ""}, {15, stall(90, 4, 4, 3.97), ""}},
		"stalls of some pods":           {{0, stall(90, 12, 0, 0), ""}, {15, stall(90, 12, 0, 0), "r+"}},
		"stalls of two pods":            {{0, stall(90, 90, 90), ""}, {15, stall(90, 90, 90), ""}},
		"stalls, v1":                    {{0, stallV1(15), ""}, {15, stallV1(15), "r+"}, {20, stallV1(14.9), ""}},
		"stalls, missing rounds": {
			{0, stallV1(90), ""}, {15, stallV1(90), "r+"}, {30.1, stallV1(90), ""}, {45.1, stallV1(90), "r+"},
		},
		"stalls are unknown in a round": {
			{0, stallV1(90), ""}, {10, func(f *Facts) { f.Node.Stall = nil }, ""}, {15, stallV1(90), "r+"},
			{20, func(f *Facts) { f.Node.Stall = nil }, ""}, {25, stallV1(90), "r+"}, {45, stallV1(90), ""},
		},
		"stalls are unknown for long": {
			{0, stallV1(90), ""}, {10, func(f *Facts) { f.Node.Stall = nil }, ""}, {15.1, stallV1(90), ""},
			{30, stallV1(90), ""}, {30.1, stallV1(90), "r+"},
		},
		"stalls of pods, then of fewer": {
			{0, stall(90, 4, 4, 4), ""}, {15, stall(90, 4, 4, 4), "r+"}, {20, stall(90, 4, 4), ""},
			{25, stall(90, 4, 4, 4), ""}, {40, stall(90, 4, 4, 4), "r+"},
		},
		"kswapd is unknown": append(append([]step{{0, nothing, ""}}, kswapd(5, 120, 2000, "")...),
			kswapd(125, 125, 2000, "r+")[0], step{130, func(f *Facts) { f.Node.Stolen = nil }, ""},
			step{135, func(f *Facts) { f.Node.Stolen = new(int64(135 * 2000)) }, "r+"},
			step{140, func(f *Facts) { f.Node.Stolen = nil }, ""}, step{3600, nothing, ""}),
		"free and stalls": {
			{0, stallV1(90), ""}, {5, free(0), "r+"}, {15, nothing, "r+"}, {30, nothing, "r+"}, {45, nothing, "all+"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var state State
			list, usage := pods()
			f := &Facts{Node: calm(), Pods: list, Usage: usage, Stalls: map[types.UID]float64{}}
			for _, s := range steps {
				f.Now = start.Add(time.Duration(s.at * float64(time.Second)))
				s.change(f)
				var found rule.Finding
				found, state = Decide(f, &settings, state)
				if got := described(t, &found); got != s.want {
					t.Errorf("at %v s: %q, want %q; %+v", s.at, got, s.want, found.Threshold)
				}
			}
		})
	}
}

// described returns a finding as the field want of a step has it.
func described(t *testing.T, found *rule.Finding) string {
	t.Helper()
	c := found.Threshold.Condition
	if c == nil {
		c = &arbiter.ConditionReport{Name: "MemoryPressure", Effects: []string{"NoSchedule"}}
	}
	if c.Name != "MemoryPressure" || !slices.Equal(c.Effects, []string{"NoSchedule"}) || c.Resource {
		t.Fatalf("condition %+v", c)
	}
	text := ""
	switch {
	case slices.Equal(found.Top, []types.UID{"reclaimed"}):
		text = "r"
	case slices.Equal(found.Top, []types.UID{"reclaimed", "large", "small"}):
		text = "all"
	case len(found.Top) > 0:
		t.Errorf("pods %v", found.Top)
	}
	if (text != "") != (found.Threshold.Kind == arbiter.Hard) || len(found.Pods) > 0 {
		t.Errorf("%+v", found)
	}
	if text != "" && found.Threshold.Scope != "memory" {
		t.Errorf("scope %q", found.Threshold.Scope)
	}
	if c.Met {
		text += "+"
	}
	return text
}

// TestCoolDown: after a pod was proposed, the threshold stays met, and no other pod is proposed for a time.
func TestCoolDown(t *testing.T) {
	list, usage := pods()
	f := &Facts{Now: start, Node: calm(), Pods: list, Usage: usage}
	f.Node.Free = new(int64(0))
	_, state := Decide(f, &settings, State{})
	state = state.Propose(start)
	for _, tc := range []struct {
		at   time.Duration
		want int
	}{{5, 0}, {34, 0}, {35, 1}, {36, 1}} {
		f.Now = start.Add(tc.at * time.Second)
		var found rule.Finding
		found, state = Decide(f, &settings, state)
		if len(found.Top) != tc.want || found.Threshold.Kind != arbiter.Hard || len(found.Threshold.Candidates) != 1 {
			t.Errorf("after %d s: %v, %+v", tc.at, found.Top, found.Threshold)
		}
	}
}

// TestNobodyToEvict: without pods that may be evicted the condition is reported nevertheless.
func TestNobodyToEvict(t *testing.T) {
	list, usage := pods()
	f := &Facts{Now: start, Node: calm(), Usage: usage, Ending: map[types.UID]bool{"reclaimed": true}}
	f.Node.Free = new(int64(0))
	for name, change := range map[string]func(){
		"no pods":              func() {},
		"it is being stopped":  func() { f.Pods = list },
		"its usage is unknown": func() { f.Ending = nil; delete(usage, "reclaimed") },
	} {
		change()
		found, _ := Decide(f, &settings, State{})
		if found.Threshold.Kind != arbiter.NotMet || !found.Threshold.Condition.Met || len(found.Top) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestMessages: the values of the threshold are those of the cause.
func TestMessages(t *testing.T) {
	list, usage := pods()
	f := &Facts{Now: start, Node: calm(), Pods: list, Usage: usage}
	f.Node.Free = new(int64(7))
	found, _ := Decide(f, &settings, State{})
	if c := found.Threshold; c.Observed != 7 || c.Target != float64(total/1000) || !c.LessThan {
		t.Errorf("%+v", c)
	}
	f.Node.Free, f.Node.Stall = new(gi), new(20.5)
	found, _ = Decide(f, &settings, State{Stalled: rule.Since{From: start.Add(-time.Minute), Last: start}})
	if c := found.Threshold; c.Observed != 20.5 || c.Target != 15 || c.LessThan {
		t.Errorf("%+v", c)
	}
}

// TestNotes: the rule says what it does without.
func TestNotes(t *testing.T) {
	for want, change := range map[string]func(*Facts){
		"":          func(*Facts) {},
		"cgroup v1": func(f *Facts) { f.Stalls = nil },
		"of the node cannot be read": func(f *Facts) {
			f.Node.Stall = nil
		},
	} {
		f := &Facts{Now: start, Node: calm(), Stalls: map[types.UID]float64{}}
		change(f)
		found, _ := Decide(f, &settings, State{})
		if (want == "") != (len(found.Notes) == 0) || (want != "" && !strings.Contains(found.Notes[0].Text, want)) {
			t.Errorf("%+v, want %q", found.Notes, want)
		}
	}
	if (&Node{}).Unknown() == nil || (&Node{Stall: new(0.0)}).Unknown() != nil || new(calm()).Unknown() != nil {
		t.Error("whether anything is known")
	}
}

// TestConditionOverARestart: memory is scarce when the agent is restarted, which the Node says. That is not withdrawn
// while the time of a cause is measured again, and it is as soon as none is.
func TestConditionOverARestart(t *testing.T) {
	full := []step{{0, stall(90, 9, 9, 9), "?"}, {5, func(*Facts) {}, "?"}, {10, func(*Facts) {}, "?"},
		{15, func(*Facts) {}, "true"}}
	for name, steps := range map[string][]step{
		"stalls":     full,
		"stalls end": append(slices.Clone(full[:3]), step{15, stall(1, 0, 0, 0), "false"}),
		"kswapd": append(append([]step{{0, func(*Facts) {}, "?"}}, kswapd(5, 120, 2000, "?")...),
			kswapd(125, 130, 2000, "true")...),
		"kswapd pauses": append(append([]step{{0, func(*Facts) {}, "?"}}, kswapd(5, 60, 2000, "?")...),
			kswapd(65, 70, 0, "false")...),
		"calm":            {{0, func(*Facts) {}, "?"}, {5, func(*Facts) {}, "false"}},
		"free":            {{0, free(0), "true"}, {5, func(*Facts) {}, "true"}, {10, free(gi), "false"}},
		"without a count": {{0, func(f *Facts) { f.Node.Stolen = nil }, "false"}},
	} {
		t.Run(name, func(t *testing.T) {
			var state State
			list, usage := pods()
			f := &Facts{Node: calm(), Pods: list, Usage: usage, Stalls: map[types.UID]float64{}}
			for _, s := range steps {
				f.Now = start.Add(time.Duration(s.at * float64(time.Second)))
				s.change(f)
				var found rule.Finding
				found, state = Decide(f, &settings, state)
				got := "?"
				if c := found.Threshold.Condition; c != nil {
					got = fmt.Sprint(c.Met)
				}
				if got != s.want {
					t.Errorf("at %v s: %s, want %s", s.at, got, s.want)
				}
			}
		})
	}
}

// TestMeanIsExact compares the mean of pods with one of whole hundredths.
func TestMeanIsExact(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 10_000 {
		stalls, sum, n := map[types.UID]float64{}, 0, 3+random.Intn(20)
		for i := range n {
			hundredths := random.Intn(801)
			if i == n-1 { // close to the threshold
				hundredths = max(0, 400*n-sum+random.Intn(3)-1)
			}
			sum += hundredths
			stalls[types.UID(fmt.Sprint(i))] = float64(hundredths) / 100
		}
		if got, want := meanReaches(stalls, 4), sum >= 400*n; got != want {
			t.Fatalf("%v: %t", stalls, got)
		}
	}
}
