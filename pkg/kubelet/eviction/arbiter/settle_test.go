package arbiter

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

var start = time.Unix(1e9, 0)

func defaultRules() *Rules {
	return &Rules{Burst: 3, MaxInFlight: 10, MaxGracePeriodSeconds: 600, ConditionTransitionPeriod: 5 * time.Minute}
}

// history plays rounds of five seconds.
type history struct {
	t     *testing.T
	rules *Rules
	pods  []Pod
	state State
	// active are the plugins of the last round.
	active []string
	now    time.Time
}

func newHistory(t *testing.T, pods ...Pod) *history {
	return &history{t: t, rules: defaultRules(), pods: pods, now: start}
}

func (h *history) round(plugins ...Answer) Outcome {
	h.now = h.now.Add(5 * time.Second)
	h.active = nil
	for i := range plugins {
		plugins[i].Asked = h.now
		h.active = append(h.active, plugins[i].Plugin)
	}
	return h.settle(Answers{Active: h.active, Begun: true, Plugins: plugins})
}

func (h *history) replies(replies ...Reply) Outcome {
	return h.settle(Answers{Active: h.active, Replies: replies})
}

func (h *history) settle(answers Answers) (out Outcome) {
	out, h.state = Settle(answers, h.pods, h.rules, h.state, h.now)
	return out
}

func (h *history) pod(uid types.UID) *Pod {
	i := slices.IndexFunc(h.pods, func(p Pod) bool { return p.UID == uid })
	return &h.pods[i]
}

func forced(plugin string, uids ...types.UID) Answer {
	d := &Demand{}
	for _, uid := range uids {
		d.Pods = append(d.Pods, PodDemand{UID: uid, Reason: "asked", Force: true})
	}
	return Answer{Plugin: plugin, Threshold: &Threshold{}, Demand: d}
}

func hard(plugin string, grace time.Duration) Answer {
	return Answer{Plugin: plugin, Demand: &Demand{}, Threshold: &Threshold{Kind: Hard, Scope: "memory", Target: 10,
		Observed: 5, LessThan: true, Grace: grace}}
}

func uids(requests []snapshot.Request) string {
	var list []string
	for i := range requests {
		list = append(list, string(requests[i].UID))
	}
	return strings.Join(list, " ")
}

func (h *history) expect(what, got, want string) {
	h.t.Helper()
	if got != want {
		h.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// E7: pods are found by UID among ours and judged on our object.
func TestE7ForeignAndProtectedPodsAreDropped(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"}, Pod{UID: "crit", Excluded: Critical}, Pod{UID: "label", Excluded: SkipLabel})
	out := h.round(forced("p", "foreign", "crit", "label", "a"))
	h.expect("requests", uids(out.Requests), "a")
	want := []Dropped{{"p", "crit", Critical}, {"p", "foreign", Unknown}, {"p", "label", SkipLabel}}
	if diff := cmp.Diff(want, out.Dropped); diff != "" {
		t.Error(diff)
	}
}

// E9: of five forced pods, the least protected go first, a burst in each round.
func TestE9ForcedPodsGoInOrder(t *testing.T) {
	h := newHistory(t, Pod{UID: "a", Priority: 5}, Pod{UID: "b", Priority: 1},
		Pod{UID: "c", QoSLevel: ReclaimedCores, Priority: 9}, Pod{UID: "d", Priority: 1}, Pod{UID: "e", Priority: 7})
	h.rules.Burst = 2
	all := forced("p", "e", "d", "c", "b", "a")
	h.expect("first round", uids(h.round(all).Requests), "c b")
	h.expect("second round", uids(h.round(all).Requests), "c b d a")
	h.expect("third round", uids(h.round(all).Requests), "c b d a e")
}

// E10: a hard threshold that stays met takes no second pod before the first is released or overdue.
func TestE10OneHardVictimAtATime(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"}, Pod{UID: "b"})
	out := h.round(hard("p", 0))
	if len(out.Questions) != 1 || out.Questions[0].TopN != 1 {
		t.Fatalf("questions: %+v", out.Questions)
	}
	out = h.replies(Reply{Question: out.Questions[0], Pods: []types.UID{"a", "b"}})
	h.expect("requests", uids(out.Requests), "a")
	h.pod("a").InFlight = true
	if out = h.round(hard("p", 0)); len(out.Questions) != 0 {
		t.Errorf("asked again while the victim is in flight: %+v", out.Questions)
	}
	h.pod("a").Overdue = true
	if out = h.round(hard("p", 0)); len(out.Questions) != 1 {
		t.Errorf("not asked again when the victim is overdue: %+v", out.Questions)
	}
	h.pods = h.pods[1:]
	if out = h.round(hard("p", 0)); len(out.Questions) != 1 {
		t.Errorf("not asked again when the victim is released: %+v", out.Questions)
	}
}

// E13: a missing answer stops the clock of a threshold, three end it; a soft threshold that turns hard starts again.
func TestE13ClocksPauseAndEnd(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"})
	met, gone := hard("p", 10*time.Second), Answer{Plugin: "p"}
	for i, step := range []struct {
		answer    Answer
		questions int
	}{{met, 0}, {met, 0}, {gone, 0}, {met, 0}, {met, 1}, {gone, 0}, {gone, 0}, {gone, 0}, {met, 0}, {met, 0}, {met, 1}} {
		if out := h.round(step.answer); len(out.Questions) != step.questions {
			t.Errorf("round %d: %d questions, not %d", i+1, len(out.Questions), step.questions)
		}
	}
	h = newHistory(t, Pod{UID: "a"})
	soft := hard("p", 10*time.Second)
	soft.Threshold = new(*soft.Threshold)
	soft.Threshold.Kind = Soft
	h.round(soft)
	h.round(soft)
	h.round(soft)
	if out := h.round(met); len(out.Questions) != 0 {
		t.Error("a hard threshold has taken over the clock of the soft one")
	}
}

// E14, E15: several plugins that name one pod: force wins, the shortest grace asked for with force, reasons in the
// order of names; no plugin's options change those of another.
func TestE15PluginsThatNameOnePod(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"})
	shared := new(int64(60))
	ask := func(plugin string, force bool, grace *int64) Answer {
		return Answer{Plugin: plugin, Threshold: &Threshold{}, Demand: &Demand{Pods: []PodDemand{
			{UID: "a", Reason: "r", Force: force, GraceSeconds: grace},
		}}}
	}
	out := h.round(ask("c", true, shared), ask("b", false, new(int64(5))), ask("a", true, new(int64(90))))
	if len(out.Requests) != 1 {
		t.Fatalf("requests: %+v", out.Requests)
	}
	r := out.Requests[0]
	h.expect("reason", r.Reason, "a: r; b: r; c: r")
	if !r.Forced || *r.GraceSeconds != 60 || *shared != 60 {
		t.Errorf("forced %v, grace %d, shared options %d", r.Forced, *r.GraceSeconds, *shared)
	}
}

// E18: conditions become False after the transition period and are removed an hour later.
func TestE18ConditionsEnd(t *testing.T) {
	h := newHistory(t)
	report := Answer{Plugin: "p", Threshold: &Threshold{Condition: &ConditionReport{Name: "Hot", Met: true,
		Effects: []string{"NoSchedule", "Nonsense"}}}}
	quiet := Answer{Plugin: "p", Threshold: &Threshold{}}
	want := []Condition{{Name: "Hot", True: true, Effects: []string{"NoSchedule"}, Plugins: []string{"p"},
		LastMet: start.Add(5 * time.Second)}}
	if diff := cmp.Diff(want, h.round(report).Conditions); diff != "" {
		t.Error(diff)
	}
	var ended, removed time.Duration
	for met := h.now; removed == 0; {
		list := h.round(quiet).Conditions
		switch age := h.now.Sub(met); {
		case len(list) == 0:
			removed = age
		case !list[0].True && ended == 0:
			ended = age
		}
	}
	h.expect("false, removed after", fmt.Sprint(ended, removed), "5m0s 1h5m0s")
}

// E23: without options the pod has its own grace period; zero never reaches the API server.
func TestE23GraceOfZero(t *testing.T) {
	for _, tc := range []struct{ asked, want *int64 }{
		{nil, nil}, {new(int64(-1)), nil}, {new(int64(0)), new(int64(1))}, {new(int64(math.MaxInt64)), new(int64(600))},
		{new(int64(math.MinInt64)), nil},
	} {
		h := newHistory(t, Pod{UID: "a"})
		a := forced("p", "a")
		a.Demand.Pods[0].GraceSeconds = tc.asked
		if diff := cmp.Diff(tc.want, h.round(a).Requests[0].GraceSeconds); diff != "" {
			t.Error(diff)
		}
	}
}

// What is asked for no longer is withdrawn, and what one plugin leaves unanswered for three rounds.
func TestRequestsAreWithdrawn(t *testing.T) {
	h := newHistory(t, Pod{UID: "a"}, Pod{UID: "b"})
	h.expect("asked", uids(h.round(forced("p", "a"), forced("q", "b")).Requests), "a b")
	h.expect("one missing", uids(h.round(forced("p"), Answer{Plugin: "q"}).Requests), "b")
	h.expect("twice", uids(h.round(forced("p"), Answer{Plugin: "q"}).Requests), "b")
	h.expect("three times", uids(h.round(forced("p"), Answer{Plugin: "q"}).Requests), "")
	h.expect("again", uids(h.round(forced("p", "a")).Requests), "a")
	h.expect("plugin gone", uids(h.round().Requests), "")
}

// draw makes random answers about pods, foreign ones among them.
type draw struct {
	*rand.Rand
	plugins []string
	pods    []types.UID
}

func (d *draw) uid() types.UID {
	if d.IntN(5) == 0 {
		return "foreign"
	}
	return d.pods[d.IntN(len(d.pods))]
}

func (d *draw) grace() *int64 {
	return []*int64{nil, new(int64(-1)), new(int64(0)), new(int64(30)), new(int64(math.MaxInt64))}[d.IntN(5)]
}

func (d *draw) answers(now time.Time) (a Answers) {
	a.Active, a.Begun = d.plugins, d.IntN(2) == 0
	for _, plugin := range d.plugins {
		if d.IntN(4) == 0 {
			continue
		}
		answer := Answer{Plugin: plugin, Asked: now}
		if d.IntN(4) > 0 {
			answer.Threshold = &Threshold{Kind: Kind(d.IntN(3)), Scope: []string{"memory", "cpu", "x"}[d.IntN(3)],
				Grace: time.Duration(d.IntN(3)) * 5 * time.Second, Candidates: d.list()}
			if d.IntN(2) == 0 {
				answer.Threshold.Condition = &ConditionReport{Name: fmt.Sprint("C", d.IntN(100)), Met: d.IntN(2) == 0}
			}
		}
		if d.IntN(4) > 0 {
			answer.Demand = &Demand{}
			for _, uid := range d.list() {
				answer.Demand.Pods = append(answer.Demand.Pods, PodDemand{UID: uid, Reason: "r", GraceSeconds: d.grace(),
					Force: d.IntN(2) == 0})
			}
		}
		a.Plugins = append(a.Plugins, answer)
	}
	return a
}

func (d *draw) list() (list []types.UID) {
	for range d.IntN(4) {
		list = append(list, d.uid())
	}
	return list
}

// Random rounds: the order of the input makes no difference, no foreign, excluded or doubled pod is requested, and the
// bounds hold.
func TestRandomAnswers(t *testing.T) {
	for seed := range uint64(histories) {
		d := &draw{Rand: rand.New(rand.NewPCG(seed, 1)), plugins: []string{"p", "q", "r"},
			pods: []types.UID{"a", "b", "c", "d", "e", "f"}}
		h := newHistory(t)
		for i, uid := range d.pods {
			h.pods = append(h.pods, Pod{UID: uid, Priority: int32(d.IntN(3)), NotifyOnly: d.IntN(4) == 0,
				QoSLevel: []string{"", ReclaimedCores, "other_cores"}[d.IntN(3)]})
			if i == 0 {
				h.pods[0].Excluded = Critical
			}
		}
		h.rules.Burst, h.rules.MaxInFlight, h.rules.Killers = d.IntN(4)-1, 1+d.IntN(4), d.killers()
		for range 12 {
			for i := range h.pods {
				p := &h.pods[i]
				p.Blocked = d.IntN(3) == 0
				switch {
				case p.InFlight:
					p.InFlight, p.Overdue = d.IntN(3) > 0, d.IntN(4) == 0
				default:
					_, offered := slices.BinarySearch(h.state.Offered, p.UID)
					p.InFlight = offered && d.IntN(2) == 0
				}
			}
			h.random(d)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

func (h *history) random(d *draw) {
	h.now = h.now.Add(5 * time.Second)
	answers, before := d.answers(h.now), h.state
	out := h.settle(answers)
	h.active = answers.Active
	h.check(answers.Begun, before, out)
	again := Answers{Active: answers.Active, Begun: answers.Begun, Plugins: slices.Clone(answers.Plugins)}
	slices.Reverse(again.Plugins)
	pods := slices.Clone(h.pods)
	slices.Reverse(pods)
	permuted, state := Settle(again, pods, h.rules, before, h.now)
	if diff := cmp.Diff(out, permuted); diff != "" {
		h.t.Errorf("the order of the input makes a difference:\n%s", diff)
	}
	if diff := cmp.Diff(h.state, state, cmp.AllowUnexported(Clock{})); diff != "" {
		h.t.Errorf("the order of the input makes a difference to the state:\n%s", diff)
	}
	var replies []Reply
	for _, q := range out.Questions {
		h.checkQuestion(&q)
		replies = append(replies, Reply{Question: q, Pods: d.list(), GraceSeconds: d.grace()})
	}
	before = h.state
	h.check(false, before, h.replies(replies...))
}

func (h *history) check(begun bool, before State, out Outcome) {
	seen := map[types.UID]bool{}
	fresh, soft, inFlight := before.Fresh, before.FreshSoft, 0
	if begun {
		fresh, soft = 0, 0
	}
	for i := range h.pods {
		if h.pods[i].InFlight && !h.pods[i].Overdue {
			inFlight++
		}
	}
	for i := range out.Requests {
		r := &out.Requests[i]
		j := slices.IndexFunc(h.pods, func(p Pod) bool { return p.UID == r.UID })
		if j < 0 || h.pods[j].Excluded != NotExcluded || seen[r.UID] {
			h.t.Errorf("must not be requested: %+v", r)
			continue
		}
		seen[r.UID] = true
		if r.GraceSeconds != nil && (*r.GraceSeconds < 1 || *r.GraceSeconds > h.rules.MaxGracePeriodSeconds) {
			h.t.Errorf("grace %d", *r.GraceSeconds)
		}
		if h.pods[j].NotifyOnly && !r.Forced {
			h.t.Errorf("is given notice only: %+v", r)
		}
		if h.pods[j].InFlight {
			if !r.Forced {
				h.t.Errorf("in flight twice: %+v", r)
			}
			continue
		}
		inFlight++
		if _, ok := slices.BinarySearch(before.Offered, r.UID); !ok {
			if fresh++; !r.Forced {
				soft++
			}
		}
	}
	if h.rules.Burst >= 0 && fresh > h.rules.Burst || soft > 1 {
		h.t.Errorf("%d new requests, %d of them soft; burst %d", fresh, soft, h.rules.Burst)
	}
	if len(seen) > 0 && fresh > before.Fresh && inFlight > h.rules.MaxInFlight {
		h.t.Errorf("%d in flight or requested, at most %d", inFlight, h.rules.MaxInFlight)
	}
	if len(out.Conditions) > maxConditions {
		h.t.Errorf("%d conditions", len(out.Conditions))
	}
	h.checkNotices(out)
	h.checkBlocked(before, out)
}

// The effects of a condition of the CustomNodeResource have QoS levels, those of one of the Node have none.
func TestEffectsOfResourceConditions(t *testing.T) {
	h := newHistory(t)
	report := Answer{Plugin: "p", Threshold: &Threshold{Condition: &ConditionReport{Resource: true, Name: "Hot", Met: true,
		Effects: []string{"shared_cores/NoExecute", "NoSchedule", "reclaimed_cores/NoSchedule", "other/NoSchedule"}}}}
	list := h.round(report).Conditions
	want := []Condition{{Resource: true, Name: "Hot", True: true, Plugins: []string{"p"},
		LastMet: start.Add(5 * time.Second),
		Effects: []string{"reclaimed_cores/NoSchedule", "shared_cores/NoExecute"}}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Error(diff)
	}
}
