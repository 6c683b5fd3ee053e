package policy

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// requestFor returns a forced request with a grace period of five seconds, changed by the functions.
func requestFor(name string, changes ...func(*snapshot.Request)) snapshot.Request {
	q := snapshot.Request{
		UID: types.UID(name), Plugins: []string{"p"}, Scope: "force", Forced: true, GraceSeconds: new(int64(5)),
		Reason: "p: too hot", Since: start,
	}
	for _, change := range changes {
		change(&q)
	}
	return q
}

func unforced(q *snapshot.Request) { q.Forced = false }
func ownGrace(q *snapshot.Request) { q.GraceSeconds = nil }

func graceOf(seconds int64) func(*snapshot.Request) {
	return func(q *snapshot.Request) { q.GraceSeconds = &seconds }
}

// asks lets plugins request these evictions from now on.
func (w *world) asks(requests ...snapshot.Request) *world {
	w.requests = requests
	return w
}

// requestedVictims returns the victims that are there because of plugins, with their grace periods.
func requestedVictims(d *Decision) (list []string) {
	for i := range d.Victims {
		if v := &d.Victims[i]; v.Cause.Kind == PluginRequest {
			hastened := ""
			if v.Hasten {
				hastened = " hastened"
			}
			list = append(list, fmt.Sprintf("%s/%d%s", v.Pod.Name, v.GraceSeconds, hastened))
		}
	}
	return list
}

func (w *world) serves(d Decision, want ...string) {
	w.Helper()
	if got := requestedVictims(&d); fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("served %v, want %v", got, want)
	}
}

func TestRequestsBecomeVictims(t *testing.T) {
	const second = time.Second
	inFlight := func(state snapshot.InFlightState, left time.Duration) *snapshot.InFlight {
		return &snapshot.InFlight{UID: "a", State: state, Requested: true, Started: start, Changed: start,
			Deadline: start.Add(left)}
	}
	for name, test := range map[string]struct {
		pod    spec
		flight *snapshot.InFlight
		asks   snapshot.Request
		want   string
	}{
		"forced":            {asks: requestFor("a"), want: "a/5"},
		"soft":              {asks: requestFor("a", unforced), want: "a/5"},
		"own grace":         {pod: spec{grace: new(int64(90))}, asks: requestFor("a", ownGrace), want: "a/90"},
		"default grace":     {asks: requestFor("a", ownGrace), want: "a/30"},
		"own grace of zero": {pod: spec{grace: new(int64(0))}, asks: requestFor("a", ownGrace), want: "a/1"},
		"grace of zero":     {asks: requestFor("a", graceOf(0)), want: "a/1"},
		"longest grace": {
			asks: requestFor("a", graceOf(math.MaxInt64)), want: fmt.Sprintf("a/%d", math.MaxInt64),
		},
		"foreign":   {asks: requestFor("b")},
		"static":    {pod: spec{static: true}, asks: requestFor("a")},
		"critical":  {pod: spec{priority: 2_000_000_000}, asks: requestFor("a")},
		"in flight": {flight: inFlight(snapshot.Stopping, 5*second), asks: requestFor("a")},
		"in flight, shorter": {
			flight: inFlight(snapshot.Stopping, 30*second), asks: requestFor("a"), want: "a/5 hastened",
		},
		"in flight, longest": {
			flight: inFlight(snapshot.Stopping, 30*second), asks: requestFor("a", graceOf(math.MaxInt64)),
		},
		"in flight, own":           {flight: inFlight(snapshot.Stopping, 60*second), asks: requestFor("a", ownGrace)},
		"in flight, soft":          {flight: inFlight(snapshot.Stopping, 30*second), asks: requestFor("a", unforced)},
		"in flight, late":          {flight: inFlight(snapshot.Stopping, -30*second), asks: requestFor("a")},
		"in flight, less than 1 s": {flight: inFlight(snapshot.Stopping, 5*second+second/2), asks: requestFor("a")},
		"stopped":                  {flight: inFlight(snapshot.Stopped, 30*second), asks: requestFor("a")},
		"failed":                   {flight: inFlight(snapshot.Failed, 30*second), asks: requestFor("a")},
		"deleted":                  {pod: spec{terminatingIn: 4 * second}, asks: requestFor("a")},
		"deleted, shorter":         {pod: spec{terminatingIn: 40 * second}, asks: requestFor("a"), want: "a/5 hastened"},
		"deleted, soft":            {pod: spec{terminatingIn: 40 * second}, asks: requestFor("a", unforced)},
		"in flight, longer deleted": {
			pod: spec{terminatingIn: 40 * second}, flight: inFlight(snapshot.Stopping, second), asks: requestFor("a"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.pod.name = "a"
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), test.pod).
				available(snapshot.MemoryAvailable, 20*gi).asks(test.asks)
			if test.flight != nil {
				w.flight = []snapshot.InFlight{*test.flight}
			}
			if d := w.after(0); test.want == "" {
				w.serves(d)
			} else {
				w.serves(d, test.want)
			}
		})
	}
}

// A pod whose termination has no known deadline is left alone: no grace period is known to be shorter.
func TestRequestForAPodThatEndsAtAnUnknownTime(t *testing.T) {
	w := newWorld(t, rulesOf(), spec{name: "a"}).asks(requestFor("a"))
	s := w.snapshot()
	s.Pods[0].Terminating = &snapshot.Termination{}
	d, _ := Decide(s, w.rules, State{})
	w.serves(d)
}

func TestVictimOfARequest(t *testing.T) {
	w := newWorld(t, rulesOf(), spec{name: "a", memory: 100 * mi}).asks(requestFor("a", func(q *snapshot.Request) {
		q.Plugins, q.Reason = []string{"p", "q"}, "p: too hot; q: too loud"
	}))
	d := w.after(0)
	if len(d.Victims) != 1 {
		t.Fatalf("victims %v", names(d.Victims))
	}
	v := &d.Victims[0]
	const message = `Eviction requested by plugin p, q (scope "force"): p: too hot; q: too loud. `
	if v.Message != message || v.Cause != (Cause{Kind: PluginRequest, Plugins: "p,q"}) || v.Cause.Name() != "plugin" ||
		v.Cause.Hard() || !v.Since.IsZero() || v.Expected.Memory != snapshot.Bytes(100*mi) {
		t.Errorf("%+v", v)
	}
}

func TestMessagesOfRequestsAreBounded(t *testing.T) {
	for _, q := range []snapshot.Request{
		{Plugins: []string{"p"}, Scope: "memory", Reason: "p:" + strings.Repeat(" ä", 2000)},
		{Plugins: []string{"p"}, Scope: strings.Repeat("€", 2000)},
		{Plugins: strings.Split(strings.Repeat("ä,", 2000), ",")},
		{Plugins: []string{"\xff"}, Scope: "\xff\n", Reason: "\xff" + strings.Repeat("x", 3000)},
	} {
		text := requestMessage(&q)
		if len(text) > maxRequestMessage || len(text) < maxRequestMessage-8 || !utf8.ValidString(text) ||
			!strings.HasSuffix(text, ". ") || strings.Contains(text, "\n") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
}

// A request that is not forced waits while a hard need is not covered by what is in flight, whatever is done about it.
func TestSoftRequestsWaitForHardNeeds(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), spec{name: "a", memory: 2 * gi},
		spec{name: "b", memory: 100 * mi, request: gi}).
		available(snapshot.MemoryAvailable, 900*mi).asks(requestFor("b", unforced))
	d := w.after(0)
	w.outcome(d, Evict)
	w.evicts(d, "a")
	w.serves(d)
	w.flight = []snapshot.InFlight{{UID: "a", Signal: snapshot.MemoryAvailable, Hard: true, Started: w.now, Changed: w.now,
		Deadline: w.now.Add(time.Second)}}
	w.pods[0].memory = 10 * mi
	d = w.after(time.Second)
	w.outcome(d, AwaitTurn)
	w.serves(d)
	w.pods[0].memory = 2 * gi
	d = w.after(time.Second)
	w.outcome(d, AwaitRelease)
	w.serves(d, "b/5")

	w = newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "1Gi")), spec{name: "b"}).
		available(snapshot.NodeFsAvailable, 900*mi).asks(requestFor("b", unforced))
	w.silent = true
	d = w.after(0)
	w.outcome(d, ReclaimNode)
	w.serves(d)
	w.reclaim = []snapshot.Reclaim{{Started: w.now, Finished: w.now.Add(time.Second)}}
	d = w.after(10 * time.Second)
	w.outcome(d, AwaitStats)
	w.serves(d)
	w.available(snapshot.NodeFsAvailable, 9*gi)
	w.serves(w.after(time.Second), "b/5")
}

// Forced requests are served while the node needs something; soft ones also while only a soft need acts.
func TestRequestsThatDoNotWait(t *testing.T) {
	pods := []spec{{name: "a", memory: 2 * gi}, {name: "b", memory: 100 * mi, request: gi}}
	hard := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), pods...).
		available(snapshot.MemoryAvailable, 900*mi).asks(requestFor("b"))
	d := hard.after(0)
	hard.serves(d, "b/5")
	if fmt.Sprint(names(d.Victims)) != "[a b]" {
		t.Errorf("victims %v", names(d.Victims))
	}
	slow := newWorld(t, rulesOf(soft(threshold(snapshot.MemoryAvailable, "1Gi"), 0)), pods...).
		available(snapshot.MemoryAvailable, 900*mi).asks(requestFor("b", unforced))
	d = slow.after(0)
	slow.outcome(d, Evict)
	slow.serves(d, "b/5")
}

// Soft requests that had to wait are served one in a round, in their order; forced ones all at once.
func TestSoftRequestsAreServedOneByOne(t *testing.T) {
	w := newWorld(t, rulesOf(), spec{name: "a"}, spec{name: "b"}, spec{name: "c"}, spec{name: "d"}).
		asks(requestFor("d"), requestFor("c"), requestFor("b", unforced), requestFor("a", unforced))
	w.serves(w.after(0), "d/5", "c/5", "b/5")
}

// Pods that opted out are spared by requests that are not forced, whatever their scope.
func TestSoftRequestsSparePodsThatOptedOut(t *testing.T) {
	rules := rulesOf()
	rules.Protection = Protection{Namespaces: []string{"ns"}, MaxPods: 1, MaxMemory: snapshot.Bytes(gi)}
	s := &snapshot.Snapshot{Taken: start, WallTime: wallTime(start), Signals: snapshot.Unobserved(),
		Pods: []snapshot.Pod{annotated(spec{name: "a"}.pod(start), "", "pid"),
			annotated(spec{name: "b"}.pod(start), "", "pid")},
		Requests: []snapshot.Request{requestFor("a", unforced), requestFor("b", unforced)}}
	w := &world{T: t}
	d, _ := Decide(s, rules, State{})
	w.serves(d, "b/5") // The opt-out of b is not granted.
	s.Requests = []snapshot.Request{requestFor("a")}
	d, _ = Decide(s, rules, State{})
	w.serves(d, "a/5")
}

// A pod that the node evicts in the same round is evicted once: the cause is the node's, the shorter grace counts.
func TestRequestForAVictimOfTheNode(t *testing.T) {
	for name, test := range map[string]struct {
		asks snapshot.Request
		want int64
	}{
		"shorter": {requestFor("a", graceOf(7)), 7}, "longer": {requestFor("a", graceOf(70)), 60},
		"soft": {requestFor("a", unforced, graceOf(7)), 7}, "own": {requestFor("a", ownGrace), 60},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(soft(threshold(snapshot.MemoryAvailable, "1Gi"), 0)),
				spec{name: "a", memory: 2 * gi, grace: new(int64(90))}).
				available(snapshot.MemoryAvailable, 900*mi).asks(test.asks)
			d := w.after(0)
			if len(d.Victims) != 1 || d.Victims[0].Cause.Kind != SoftThreshold || d.Victims[0].GraceSeconds != test.want {
				t.Errorf("%+v", d.Victims)
			}
		})
	}
	s := &snapshot.Snapshot{Taken: start, WallTime: wallTime(start), Signals: snapshot.Unobserved(),
		Pods: []snapshot.Pod{violatorPod("a", mi, 2*mi)}, Requests: []snapshot.Request{requestFor("a")}}
	rules := rulesOf()
	rules.LocalStorageLimits = true
	if d, _ := Decide(s, rules, State{}); len(d.Victims) != 1 || d.Victims[0].Cause.Kind != LocalStorageLimit ||
		d.Victims[0].GraceSeconds != 1 {
		t.Errorf("%+v", d.Victims)
	}
}

// Rules in dry run serve no request, and those in force serve each once.
func TestDryRunServesNoRequest(t *testing.T) {
	dry := threshold(snapshot.MemoryAvailable, "1Gi")
	dry.DryRun = true
	w := newWorld(t, rulesOf(dry), spec{name: "a", memory: 2 * gi}, spec{name: "b", memory: mi}).
		available(snapshot.MemoryAvailable, 900*mi).asks(requestFor("b", unforced))
	d := w.after(0)
	w.serves(d, "b/5")
	if fmt.Sprint(names(d.DryRun.Victims)) != "[a]" {
		t.Errorf("in dry run: %v", names(d.DryRun.Victims))
	}
}

// What a plugin's victim releases counts for the node once it is terminating, not while it is only requested. If it
// does not release enough, the node does not wait for its effect.
func TestVictimsOfPluginsAndNeeds(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), spec{name: "a", memory: 2 * gi},
		spec{name: "b", memory: 300 * mi, request: gi}).
		available(snapshot.MemoryAvailable, 900*mi).asks(requestFor("b", unforced))
	w.evicts(w.after(0), "a")

	flight := snapshot.InFlight{UID: "b", Requested: true, Started: w.now, Changed: w.now,
		Deadline: w.now.Add(3 * time.Second), Expected: snapshot.Release{Memory: 300 * snapshot.Bytes(mi)}}
	w = newWorld(t, w.rules, w.pods...).available(snapshot.MemoryAvailable, 900*mi)
	w.flight = []snapshot.InFlight{flight}
	d := w.after(time.Second)
	w.outcome(d, AwaitRelease)
	w.evicts(d)

	w = newWorld(t, w.rules, w.pods...).available(snapshot.MemoryAvailable, 600*mi)
	w.flight = []snapshot.InFlight{flight}
	d = w.after(time.Second)
	w.outcome(d, Evict)
	w.evicts(d, "a")
	if got := d.Needs[0].InFlight; got != 300*mi {
		t.Errorf("%d bytes are in flight", got)
	}

	w = newWorld(t, w.rules, w.pods...).available(snapshot.MemoryAvailable, 600*mi)
	w.flight = []snapshot.InFlight{flight}
	w.flight[0].State, w.flight[0].Changed = snapshot.Failed, start.Add(time.Second)
	w.evicts(w.after(time.Second), "a")
}

// A need does not wait for a plugin's victim that ends too late: a hard one hastens it, a soft one evicts another pod.
func TestNeedsDoNotWaitForLateVictimsOfPlugins(t *testing.T) {
	for name, test := range map[string]struct {
		threshold Threshold
		want      string
	}{
		"hard": {threshold(snapshot.MemoryAvailable, "1Gi"), "b"},
		"soft": {soft(threshold(snapshot.MemoryAvailable, "1Gi"), 0), "a"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(test.threshold), spec{name: "a", memory: 2 * gi},
				spec{name: "b", memory: 300 * mi, request: gi}).available(snapshot.MemoryAvailable, 900*mi)
			w.flight = []snapshot.InFlight{{UID: "b", Requested: true, Started: w.now, Changed: w.now,
				Deadline: w.now.Add(10 * time.Minute), Expected: snapshot.Release{Memory: 300 * snapshot.Bytes(mi)}}}
			w.evicts(w.after(time.Second), test.want)
		})
	}
}

// While evictions are requested, a snapshot needs all pods.
func TestRequestsNeedAllPods(t *testing.T) {
	s := &snapshot.Snapshot{Taken: start}
	if !Calm(s, rulesOf()) {
		t.Error("not calm without requests")
	}
	if s.Requests = []snapshot.Request{requestFor("a")}; Calm(s, rulesOf()) {
		t.Error("calm with a request")
	}
}

// An attempt of the API server that a request has begun is withdrawn when the request would not be served any more:
// the pod opted out meanwhile, or a hard need is starved. Force goes on.
func TestSubmittedRequestsAreWithdrawn(t *testing.T) {
	api := killedBy(snapshot.EvictionAPI)
	for name, test := range map[string]struct {
		optOut    string
		available int64
		asks      snapshot.Request
		want      string
	}{
		"opted out":                 {"pid", 20 * gi, requestFor("a", unforced, api, submitted), "[a]"},
		"opted out, forced":         {"pid", 20 * gi, requestFor("a", api, submitted), "[]"},
		"opted out, not submitted":  {"pid", 20 * gi, requestFor("a", unforced, api), "[]"},
		"calm":                      {"", 20 * gi, requestFor("a", unforced, api, submitted), "[]"},
		"a hard need is starved":    {"", gi / 2, requestFor("a", unforced, api, submitted), "[a]"},
		"hard need, forced request": {"", gi / 2, requestFor("a", api, submitted), "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")), spec{name: "a"},
				spec{name: "b", memory: 9 * gi}).available(snapshot.MemoryAvailable, test.available).asks(test.asks)
			w.rules.Protection = Protection{Namespaces: []string{"*"}, MaxPods: 5, MaxMemory: 100 * snapshot.Bytes(gi)}
			s := w.snapshot()
			s.Pods[0] = annotated(s.Pods[0], "", test.optOut)
			d, _ := Decide(s, w.rules, State{})
			if got := fmt.Sprint(d.Withdrawn); got != test.want {
				t.Errorf("withdrawn %s, want %s", got, test.want)
			}
		})
	}
}

func killedBy(killer snapshot.Killer) func(*snapshot.Request) {
	return func(q *snapshot.Request) { q.Killer = killer }
}

func submitted(q *snapshot.Request) { q.Submitted = true }

// A request is served by its killer, unless the pod is a victim or terminating already: then by the pod workers. One
// that is submitted is not served again, and takes no turn of another one, but hastens a pod that is terminating.
func TestKillersOfVictims(t *testing.T) {
	api := killedBy(snapshot.EvictionAPI)
	for name, test := range map[string]struct {
		available int64
		deleted   time.Duration
		asks      []snapshot.Request
		want      string
	}{
		"eviction API": {asks: []snapshot.Request{requestFor("a", api)}, want: "[a/EvictionAPI]"},
		"delete API": {
			asks: []snapshot.Request{requestFor("a", unforced, killedBy(snapshot.DeleteAPI))}, want: "[a/DeleteAPI]",
		},
		"pod workers": {asks: []snapshot.Request{requestFor("a")}, want: "[a/PodWorker]"},
		"terminating": {
			deleted: time.Minute, asks: []snapshot.Request{requestFor("a", api)}, want: "[a/PodWorker]",
		},
		"victim of the node": {
			available: gi / 2, asks: []snapshot.Request{requestFor("a", api, submitted)}, want: "[a/PodWorker]",
		},
		"submitted, forced": {asks: []snapshot.Request{requestFor("a", api, submitted)}, want: "[]"},
		"submitted and terminating": {
			deleted: time.Minute, asks: []snapshot.Request{requestFor("a", api, submitted)}, want: "[a/PodWorker]",
		},
		"submitted and terminating in time": {
			deleted: 5 * time.Second, asks: []snapshot.Request{requestFor("a", api, submitted)}, want: "[]",
		},
		"submitted and terminating, soft": {
			deleted: time.Minute, asks: []snapshot.Request{requestFor("a", unforced, api, submitted)}, want: "[]",
		},
		"submitted, soft": {
			asks: []snapshot.Request{requestFor("a", unforced, api, submitted), requestFor("b", unforced, api),
				requestFor("c", unforced)},
			want: "[b/EvictionAPI]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if test.available == 0 {
				test.available = 20 * gi
			}
			w := newWorld(t, rulesOf(threshold(snapshot.MemoryAvailable, "1Gi")),
				spec{name: "a", memory: 9 * gi, terminatingIn: test.deleted}, spec{name: "b"}, spec{name: "c"}).
				available(snapshot.MemoryAvailable, test.available).asks(test.asks...)
			d := w.after(0)
			got := []string{}
			for i := range d.Victims {
				got = append(got, fmt.Sprintf("%s/%s", d.Victims[i].Pod.Name, d.Victims[i].Killer))
			}
			if fmt.Sprint(got) != test.want {
				t.Errorf("victims %v, want %v", got, test.want)
			}
		})
	}
}
