package memorygrowth

import (
	"fmt"
	"math"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func constant(bytes int64) usage { return func(time.Duration) int64 { return bytes } }

// leak grows by rate in MiB per second, from a delay on.
func leak(from int64, rate float64, delay time.Duration) usage {
	return func(at time.Duration) int64 {
		return from + int64(rate*float64(mi)*max(0, at-delay).Seconds())
	}
}

// sawtooth grows for a period and falls at its end.
func sawtooth(from, height int64, length, phase time.Duration) usage {
	return func(at time.Duration) int64 {
		return from + int64(float64(height)*float64((at+phase)%length)/float64(length))
	}
}

// step takes its memory at once after a delay.
func step(from, height int64, delay time.Duration) usage {
	return func(at time.Duration) int64 {
		if at < delay {
			return from
		}
		return from + height
	}
}

// noise fluctuates at random around a mean.
func noise(mean, height int64, random *rand.Rand) usage {
	seen := map[time.Duration]int64{}
	return func(at time.Duration) int64 {
		if _, ok := seen[at]; !ok {
			seen[at] = mean + int64(float64(height)*(random.Float64()-0.5))
		}
		return seen[at]
	}
}

// filled returns the memory of the system that leaves that much above the threshold beside the pods.
func filled(room int64) usage { return constant(capacity - 100*mi - room) }

func between(random *rand.Rand, from, to float64) float64 { return from + random.Float64()*(to-from) }

func durationBetween(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int63n(int64(to-from)))
}

// TestALeakIsRequestedBeforeTheThreshold: a leak is requested before memory meets the threshold, not more than the
// horizon before, and soon after its growth is known.
func TestALeakIsRequestedBeforeTheThreshold(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	for range 300 {
		rate, begins := between(random, 1, 50), durationBetween(random, 0, 3*time.Minute)
		delay := durationBetween(random, 0, time.Minute)
		room := gi + int64((80+120*random.Float64())*rate*float64(mi))
		n := &node{system: filled(room + gi), pods: []pod{
			{name: "idle", memory: constant(gi / 2)},
			{name: "leak", begins: begins, memory: leak(gi/2, rate, delay)},
			{name: "within", request: 2 * gi, memory: leak(gi/4, 1, 0)},
		}}
		crossing := n.crossing(time.Hour)
		name := fmt.Sprintf("%.1f MiB/s since %v, crossing at %v", rate, begins+delay, crossing)
		list := n.run(t, crossing)
		if len(list) == 0 {
			t.Fatalf("%s: nobody is requested", name)
		}
		for _, d := range list {
			if d.pod != "leak" {
				t.Fatalf("%s: %s is requested", name, d.pod)
			}
		}
		if early := crossing - list[0].at; early > horizon+callPeriod || early < 10*time.Second {
			t.Errorf("%s: requested %v before", name, early)
		}
	}
}

// TestGrowthIsKnownSoon: the growth of a pod that leaks from its start is part of the decision within 40 s, on a node
// with plenty of memory.
func TestGrowthIsKnownSoon(t *testing.T) {
	for offset := range 10 {
		begins := 60*time.Second + time.Duration(offset)*time.Second
		n := &node{system: constant(capacity / 2), pods: []pod{{name: "leak", begins: begins, memory: leak(0, 30, 0)}}}
		var known time.Duration
		n.observe = func(at time.Duration) {
			g := n.last.Decision.Growth
			if known > 0 || len(g.Pods) == 0 {
				return
			}
			known = at - begins
			if rate := g.Pods[0].Rate / float64(mi); math.Abs(rate-30) > 1 {
				t.Errorf("begun at %v: the growth is %.1f MiB/s", begins, rate)
			}
		}
		n.run(t, 2*time.Minute)
		if known < steadySpan || known > 40*time.Second {
			t.Errorf("begun at %v: the growth is known after %v", begins, known)
		}
	}
}

// steadySpan is the shortest time after which growth may count.
const steadySpan = 20 * time.Second

// TestASteadyPodIsNeverRequested: pods whose usage goes up and down, or that take their memory at once, are not
// requested, whatever the system does meanwhile.
func TestASteadyPodIsNeverRequested(t *testing.T) {
	random := rand.New(rand.NewSource(2))
	for run := range 1500 {
		height := int64(between(random, 10, 2048)) * mi
		begins := durationBetween(random, 0, 2*time.Minute)
		var name string
		var memory usage
		switch run % 4 {
		case 0, 1:
			length := durationBetween(random, time.Second, 20*time.Second)
			name = fmt.Sprintf("sawtooth of %v", length)
			memory = sawtooth(gi, height, length, durationBetween(random, 0, length))
		case 2:
			name, memory = "step", step(gi, height, durationBetween(random, 0, 2*time.Minute))
		case 3:
			name, memory = "noise", noise(2*gi, height, random)
		}
		n := &node{system: filled(4*gi + int64(between(random, 50, 500))*mi), pods: []pod{
			{name: "steady", begins: begins, memory: memory}, {name: "idle", memory: constant(mi)},
		}}
		if list := n.run(t, 6*time.Minute); len(list) > 0 {
			t.Errorf("run %d, %s of %d MiB: %+v", run, name, height/mi, list[0])
		}
	}
}

// TestTheFastestPodThatMayBeNamedIsRequested: of pods that grow, the one above its request that grows fastest.
func TestTheFastestPodThatMayBeNamedIsRequested(t *testing.T) {
	base := []pod{
		{name: "a", memory: leak(0, 3, 0)}, {name: "b", memory: leak(0, 5, 0)},
		{name: "within", request: 30 * gi, memory: leak(0, 7, 0)},
		{name: "critical", unnamed: true, memory: leak(0, 6, 0)},
	}
	for name, test := range map[string]struct {
		pods []pod
		want string
	}{
		"fastest":       {base, "b"},
		"equal":         {append([]pod{{name: "0", memory: leak(0, 5, 0)}}, base...), "0"},
		"within only":   {base[2:], ""},
		"insignificant": {append([]pod{{name: "slow", memory: leak(0, 1, 0)}}, base[2:]...), ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{system: filled(2 * gi), pods: test.pods}
			list := n.run(t, n.crossing(time.Hour)-10*time.Second)
			if got := fmt.Sprint(len(list) > 0); got != fmt.Sprint(test.want != "") {
				t.Fatalf("requested %+v, want %q", list, test.want)
			}
			for _, d := range list {
				if string(d.pod) != test.want {
					t.Errorf("at %v %s is requested, want %s", d.at, d.pod, test.want)
				}
			}
		})
	}
}

// TestRequestsEndWithTheGrowth: when the leak ends, it is no longer requested; nor while it is being stopped, nor when
// rounds are missing.
func TestRequestsEndWithTheGrowth(t *testing.T) {
	stopsAt := 100 * time.Second
	stops := func(at time.Duration) int64 { return leak(gi, 10, 0)(min(at, stopsAt)) }
	slow := pod{name: "slow", memory: leak(gi/4, 1, 0)}
	n := &node{system: filled(3 * gi), pods: []pod{{name: "leak", memory: stops}, slow}}
	list := n.run(t, 4*time.Minute)
	if len(list) == 0 || list[len(list)-1].at > stopsAt+2*callPeriod {
		t.Fatalf("requested %+v, want until %v", list, stopsAt)
	}

	leaking := func() *node {
		slow.memory = leak(0, 2, 0)
		n := &node{system: filled(2 * gi), pods: []pod{{name: "leak", memory: leak(0, 10, 0)}, slow}}
		if list := n.run(t, 100*time.Second); len(list) == 0 || list[len(list)-1].at < 90*time.Second {
			t.Fatalf("requested %+v", list)
		}
		return n
	}
	n = leaking()
	n.inFlight = []snapshot.InFlight{{UID: "leak", Started: start, Changed: start, Deadline: start.Add(time.Hour)}}
	n.round(n.last.Snapshot.Taken.Sub(start) + n.last.Decision.SyncAfter)
	if g := n.last.Decision.Growth; len(g.Pods) != 1 || math.Abs(g.Thresholds[0].Rate-2*float64(mi)) > float64(mi)/10 {
		t.Errorf("growth %+v, want that of the other pod", g)
	}
	n = leaking()
	if list := n.call(t, 100*time.Second+2*period+time.Second); len(list) != 0 {
		t.Errorf("requested from an old round: %+v", list)
	}
}

// TestTheHorizonMayChange: settings are read in each call.
func TestTheHorizonMayChange(t *testing.T) {
	n := &node{system: filled(4 * gi), pods: []pod{{name: "leak", memory: leak(0, 10, 0)}}}
	if list := n.run(t, time.Minute); len(list) != 0 {
		t.Fatalf("requested %v before the threshold is near", list)
	}
	n.settings.Horizon = 10 * time.Minute
	n.round(64 * time.Second)
	n.call(t, 65*time.Second)
	n.round(68 * time.Second)
	if list := n.call(t, 75*time.Second); len(list) != 1 {
		t.Errorf("requested %v with the new horizon", list)
	}
}

// TestReasons: the reason names growth, threshold and time.
func TestReasons(t *testing.T) {
	for name, test := range map[string]struct {
		allocatable bool
		want        string
	}{
		"node": {false, "memory usage grows by 10.0 MiB/s; at the node's growth of 11.0 MiB/s memory.available reaches the " +
			"threshold 100Mi in "},
		"pods": {true, "memory usage grows by 10.0 MiB/s; at the pods' growth of 10.0 MiB/s " +
			"allocatableMemory.available reaches the threshold 100Mi in "},
	} {
		t.Run(name, func(t *testing.T) {
			n := &node{system: leak(capacity-100*mi-2*gi, 1, 0), pods: []pod{{name: "leak", memory: leak(0, 10, 0)}}}
			if test.allocatable {
				n.system, n.allocatable = constant(0), true
				n.pods[0].memory = leak(capacity-100*mi-2*gi, 10, 0)
				n.begin()
				n.rules.Thresholds = n.rules.Thresholds[1:]
			}
			list := n.run(t, 2*time.Minute)
			if len(list) == 0 || !strings.HasPrefix(list[0].reason, test.want) || !strings.HasSuffix(list[0].reason, "s") {
				t.Errorf("reasons %+v, want %s…", list, test.want)
			}
		})
	}
}
