package policy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestRandomRequests plays random sequences through arbiter.Settle and Decide together: plugins request evictions, the
// node has needs of its own, and pods stop, late or not at all. PLIMSOLL_SEQUENCES overrides the number of sequences.
func TestRandomRequests(t *testing.T) {
	total := requestSequences
	if text := os.Getenv("PLIMSOLL_SEQUENCES"); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	var count requestCounts
	for seed := range uint64(total) {
		g := newRequestGame(&count, seed)
		for step := 0; step < 20 && g.fault == ""; step++ {
			g.step()
		}
		if g.fault != "" {
			t.Fatalf("seed %d: %s", seed, g.fault)
		}
	}
	t.Logf("%+v", count)
	for _, n := range []int{count.forced, count.soft, count.hastened, count.waiting, count.spared, count.shared,
		count.submitted, count.blocked, count.taken, count.noticed, count.byLevel, count.held, count.gaveBack} {
		if n < total/20 {
			t.Error("the sequences exercise too little")
		}
	}
}

// requestCounts is what has happened in all sequences: victims of forced and soft requests, those that were
// terminating, soft requests that a hard need or an opt-out held up, victims of the node that were also requested, pods
// that were submitted to the API server, calls that it refused, pods that another killer took, notices, requests whose
// killer is that of a QoS level, requests that an attempt held up, and blocked pods that gave their places back.
type requestCounts struct {
	forced, soft, hastened, waiting, spared, shared, submitted, blocked, taken, noticed, byLevel, held, gaveBack int
}

// requestGame is one sequence.
type requestGame struct {
	*rand.Rand
	count    *requestCounts
	now      time.Time
	pods     []snapshot.Pod
	flight   []snapshot.InFlight
	release  time.Time
	rules    *Rules
	state    State
	limits   *arbiter.Rules
	arbiter  arbiter.State
	requests []snapshot.Request
	// levels are the QoS levels of pods, notifyOnly those that are given notice.
	levels     map[types.UID]string
	notifyOnly map[types.UID]bool
	// attempts are those of the API server, under way or not long ago.
	attempts map[attemptKey]*attempt
	// late are the pods that were overdue once: the arbiter has given their places away, and they may be evicted again.
	late  map[types.UID]bool
	fault string
}

// attemptKey identifies an attempt of the API server to evict a pod.
type attemptKey struct {
	uid    types.UID
	killer snapshot.Killer
}

// attempt is one that is under way until the time held is set. The pod counts as submitted until then.
type attempt struct {
	victim  *Victim
	blocked bool
	held    time.Time
}

func newRequestGame(count *requestCounts, seed uint64) *requestGame {
	g := &requestGame{Rand: rand.New(rand.NewPCG(seed, 7)), count: count, now: start,
		late: map[types.UID]bool{}, attempts: map[attemptKey]*attempt{}, levels: map[types.UID]string{},
		notifyOnly: map[types.UID]bool{}}
	g.rules = rulesOf(threshold(snapshot.MemoryAvailable, "1Gi"), soft(threshold(snapshot.MemoryAvailable, "2Gi"), 0))
	g.rules.Protection = Protection{Namespaces: []string{"ns"}, MaxPods: 2, MaxMemory: math.MaxInt64}
	g.limits = &arbiter.Rules{Burst: g.IntN(4) - 1, MaxInFlight: 1 + g.IntN(4), MaxGracePeriodSeconds: 60,
		Killers: g.killers()}
	for i := range 8 {
		p := spec{name: fmt.Sprintf("pod-%d", i), priority: int32(g.IntN(3)), memory: int64(1+g.IntN(800)) * mi,
			static: g.IntN(8) == 0}
		if g.IntN(2) == 0 {
			p.grace = new(int64(g.IntN(90)))
		}
		optOut := ""
		if g.IntN(4) == 0 {
			optOut = "memory"
		}
		pod := annotated(p.pod(start), "", optOut)
		g.levels[pod.UID] = []string{"", "", arbiter.ReclaimedCores, "dedicated_cores", "shared_cores"}[g.IntN(5)]
		g.notifyOnly[pod.UID] = g.IntN(4) == 0
		g.pods = append(g.pods, pod)
	}
	return g
}

// killers are random ones. One of the levels of pods has none.
func (g *requestGame) killers() arbiter.Killers {
	k := arbiter.Killers{Forced: g.killer(), Soft: g.killer()}
	if g.IntN(2) == 0 {
		k.ByQoSLevel = map[string]snapshot.Killer{
			"": g.killer(), arbiter.ReclaimedCores: g.killer(), "dedicated_cores": g.killer(),
		}
	}
	return k
}

func (g *requestGame) killer() snapshot.Killer { return snapshot.Killer(g.IntN(3)) }

func (g *requestGame) failf(format string, a ...any) {
	if g.fault == "" {
		g.fault = fmt.Sprintf("after %v: ", g.now.Sub(start)) + fmt.Sprintf(format, a...)
	}
}

func (g *requestGame) step() {
	g.now = g.now.Add(time.Duration(1+g.IntN(40)) * 100 * time.Millisecond)
	g.progress()
	if g.IntN(8) == 0 { // the configuration changes
		g.limits.Killers = g.killers()
	}
	if g.IntN(3) > 0 {
		g.settle()
	}
	g.apiServer()
	s := g.snapshot()
	d, next := Decide(s, g.rules, g.state)
	g.checkOrder(s, &d)
	g.checkNeeds(s, &d, next)
	g.checkVictims(s, &d)
	g.checkServed(&d)
	g.state = next
	for i := range d.Victims {
		v := &d.Victims[i]
		g.checkKiller(v)
		g.withdraw(v.Pod.UID)
		if v.Killer == snapshot.PodWorker {
			g.begin(v)
			continue
		}
		g.count.submitted++
		g.attempts[attemptKey{v.Pod.UID, v.Killer}] = &attempt{victim: v}
	}
	g.checkInFlight()
}

// withdraw ends the attempts to evict a pod, since another killer evicts it.
func (g *requestGame) withdraw(uid types.UID) {
	for key, a := range g.attempts {
		if key.uid == uid && a.held.IsZero() {
			g.count.taken++
			g.endAttempt(a)
		}
	}
}

// endAttempt ends an attempt. A pod whose eviction was refused is held for the pause that the API server has asked for.
func (g *requestGame) endAttempt(a *attempt) {
	if a.held = g.now; a.blocked {
		a.held = g.now.Add(5 * time.Second)
	}
}

// apiServer answers the attempts under way: some are accepted, some rejected, and the others wait. An attempt whose
// request was withdrawn ends.
func (g *requestGame) apiServer() {
	keys := slices.SortedFunc(maps.Keys(g.attempts), func(a, b attemptKey) int {
		return cmp.Or(cmp.Compare(a.uid, b.uid), cmp.Compare(a.killer, b.killer))
	})
	for _, key := range keys {
		a, q := g.attempts[key], g.request(key.uid)
		if !a.held.IsZero() {
			if !g.now.Before(a.held) {
				delete(g.attempts, key)
			}
			continue
		}
		i := g.indexOf(key.uid)
		switch n := g.IntN(6); {
		case (q == nil || q.Killer != key.killer) && n < 3: // not checked yet
		case q == nil || q.Killer != key.killer:
			g.endAttempt(a)
		case i < 0 || g.pods[i].Terminating != nil:
			a.held, a.blocked = g.now.Add(30*time.Second), false
		case n == 0: // rejected
			a.held, a.blocked = g.now.Add(30*time.Second), true
		case n < 3:
			a.held, a.blocked = g.now.Add(30*time.Second), false
			if g.inFlight(key.uid) == nil {
				g.begin(a.victim)
				// The agent gets the deletion as well.
				g.pods[i].Terminating = &snapshot.Termination{Deadline: g.inFlight(key.uid).Deadline}
			}
		default:
			a.blocked = true
			g.count.blocked++
		}
	}
	g.requests = slices.Clone(g.requests)
	for i := range g.requests {
		q := &g.requests[i]
		q.Submitted = g.submitted(q.UID, q.Killer)
	}
}

func (g *requestGame) submitted(uid types.UID, killer snapshot.Killer) bool {
	a := g.attempts[attemptKey{uid, killer}]
	return a != nil && (a.held.IsZero() || g.now.Before(a.held))
}

// blocked reports whether the API server did not accept the eviction of a pod, and is or will be asked again.
func (g *requestGame) blocked(uid types.UID) bool {
	for key, a := range g.attempts {
		if key.uid == uid && a.blocked && (a.held.IsZero() || g.now.Before(a.held)) {
			return true
		}
	}
	return false
}

func (g *requestGame) indexOf(uid types.UID) int {
	return slices.IndexFunc(g.pods, func(p snapshot.Pod) bool { return p.UID == uid })
}

// progress lets pods stop and be deleted. One in eight is late, one in sixteen cannot be killed.
func (g *requestGame) progress() {
	g.flight = slices.DeleteFunc(g.flight, func(f snapshot.InFlight) bool {
		switch {
		case f.State == snapshot.Stopped && g.IntN(2) == 0:
			g.pods = slices.DeleteFunc(g.pods, func(p snapshot.Pod) bool { return p.UID == f.UID })
			g.release = g.now
			return true
		case f.State == snapshot.Failed:
			return g.now.Sub(f.Changed) > 30*time.Second
		}
		return false
	})
	for i := range g.flight {
		f := &g.flight[i]
		if f.State != snapshot.Stopping {
			continue
		}
		switch n := g.IntN(16); {
		case n == 0:
			f.State, f.Changed = snapshot.Failed, g.now
		case n > 2 && !g.now.Before(f.Deadline):
			f.State, f.Changed = snapshot.Stopped, g.now
		}
	}
	for i := range g.pods {
		if p := &g.pods[i]; p.Terminating == nil && g.IntN(60) == 0 {
			p.Terminating = &snapshot.Termination{Deadline: g.now.Add(time.Duration(g.IntN(90)) * time.Second)}
		}
	}
}

// settle is a round of plugins, with the answers to its questions.
func (g *requestGame) settle() {
	active := []string{"p", "q", "r"}
	answers := arbiter.Answers{Active: active, Begun: true}
	for _, plugin := range active {
		a := arbiter.Answer{Plugin: plugin, Asked: g.now, Threshold: &arbiter.Threshold{}, Demand: &arbiter.Demand{}}
		if plugin == "p" && g.IntN(2) == 0 {
			a.Threshold = &arbiter.Threshold{Kind: arbiter.Kind(g.IntN(3)), Scope: "memory"}
		}
		for range g.IntN(3) {
			a.Demand.Pods = append(a.Demand.Pods, arbiter.PodDemand{UID: g.uid(), Reason: "r", GraceSeconds: g.grace(),
				Force: g.IntN(2) == 0})
		}
		answers.Plugins = append(answers.Plugins, a)
	}
	out := g.settleWith(answers)
	var replies []arbiter.Reply
	for _, q := range out.Questions {
		replies = append(replies, arbiter.Reply{Question: q, Pods: []types.UID{g.uid(), g.uid()}, GraceSeconds: g.grace()})
	}
	g.settleWith(arbiter.Answers{Active: active, Replies: replies})
}

func (g *requestGame) settleWith(answers arbiter.Answers) arbiter.Outcome {
	pods := g.arbiterPods()
	out, next := arbiter.Settle(answers, pods, g.limits, g.arbiter, g.now)
	slices.Reverse(pods)
	other := answers
	other.Plugins = slices.Clone(answers.Plugins)
	slices.Reverse(other.Plugins)
	if again, _ := arbiter.Settle(other, pods, g.limits, g.arbiter, g.now); !reflect.DeepEqual(again, out) {
		g.failf("the order of plugins or pods makes a difference")
	}
	fresh := 0
	for i := range out.Requests {
		uid := out.Requests[i].UID
		if _, before := slices.BinarySearch(g.arbiter.Offered, uid); !before && g.inFlight(uid) == nil {
			fresh++
		}
	}
	if g.limits.Burst >= 0 && fresh > g.limits.Burst {
		g.failf("%d new requests, burst %d", fresh, g.limits.Burst)
	}
	g.checkKillers(&out)
	g.checkNotices(&out, pods)
	g.checkPlaces(&out)
	g.arbiter, g.requests = next, out.Requests
	return out
}

func (g *requestGame) arbiterPods() (list []arbiter.Pod) {
	for i := range g.pods {
		uid := g.pods[i].UID
		p := arbiter.Pod{UID: uid, Priority: g.pods[i].Priority, GraceSeconds: g.pods[i].Grace(), QoSLevel: g.levels[uid],
			NotifyOnly: g.notifyOnly[uid], Blocked: g.blocked(uid)}
		if g.pods[i].Critical && g.IntN(4) > 0 { // Decide must spare them by itself.
			p.Excluded = arbiter.Critical
		}
		if f := g.inFlight(p.UID); f != nil {
			p.InFlight, p.Overdue = true, g.overdue(f)
		}
		list = append(list, p)
	}
	return list
}

func (g *requestGame) overdue(f *snapshot.InFlight) bool {
	return f.State == snapshot.Failed || g.now.Sub(f.Deadline) > g.rules.Timing.Patience
}

func (g *requestGame) uid() types.UID {
	if len(g.pods) == 0 || g.IntN(6) == 0 {
		return "foreign"
	}
	return g.pods[g.IntN(len(g.pods))].UID
}

func (g *requestGame) grace() *int64 {
	return []*int64{nil, new(int64(-1)), new(int64(0)), new(int64(1 + g.IntN(50))), new(int64(math.MaxInt64))}[g.IntN(5)]
}

func (g *requestGame) snapshot() *snapshot.Snapshot {
	s := &snapshot.Snapshot{Taken: g.now, WallTime: wallTime(g.now), Signals: snapshot.Unobserved(),
		Layout: layoutOf(false, false), LastRelease: g.release, Pods: slices.Clone(g.pods),
		InFlight: slices.Clone(g.flight), Requests: g.requests}
	available := []int64{20 * gi, 20 * gi, 1500 * mi, 1000 * mi, 700 * mi}[g.IntN(5)]
	s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: available, Capacity: 32 * gi}
	return s
}

func (g *requestGame) inFlight(uid types.UID) *snapshot.InFlight {
	i := slices.IndexFunc(g.flight, func(f snapshot.InFlight) bool { return f.UID == uid })
	if i < 0 {
		return nil
	}
	return &g.flight[i]
}

func (g *requestGame) request(uid types.UID) *snapshot.Request {
	i := slices.IndexFunc(g.requests, func(q snapshot.Request) bool { return q.UID == uid })
	if i < 0 {
		return nil
	}
	return &g.requests[i]
}

// begin begins an eviction as the ledger does.
func (g *requestGame) begin(v *Victim) {
	deadline := g.now.Add(time.Duration(v.GraceSeconds) * time.Second)
	f := g.inFlight(v.Pod.UID)
	if f == nil {
		g.flight = append(g.flight, snapshot.InFlight{UID: v.Pod.UID, Deadline: deadline, Started: g.now,
			Signal: v.Cause.Signal, Requested: v.Cause.Kind == PluginRequest})
		f = &g.flight[len(g.flight)-1]
	} else if v.Cause.Kind != PluginRequest {
		f.Signal, f.Requested, f.Started = v.Cause.Signal, false, g.now
	}
	f.Hard = f.Hard || v.Cause.Hard()
	f.State, f.Changed, f.Expected = snapshot.Stopping, g.now, v.Expected
	if deadline.Before(f.Deadline) {
		f.Deadline = deadline
	}
}
