package simulate

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// below returns rules with one hard threshold.
func below(sig snapshot.Signal, amount string) func(*policy.Rules, snapshot.Layout) (*policy.Rules, error) {
	return func(recorded *policy.Rules, _ snapshot.Layout) (*policy.Rules, error) {
		r := *recorded
		r.Thresholds = []policy.Threshold{{Signal: sig,
			Value: evictionapi.ThresholdValue{Quantity: new(resource.MustParse(amount))}}}
		return &r, nil
	}
}

func run(t *testing.T, lines []trace.Line, settings Settings) *Result {
	t.Helper()
	s := New(settings)
	for i := range lines {
		if err := s.Add(&lines[i]); err != nil {
			t.Fatal(err)
		}
	}
	return s.Result()
}

// recordedOf plays a scenario with rules in force: the victims are gone when their kill has taken effect, as a real
// node records it.
func recordedOf(
	t *testing.T, name string, rules func(*policy.Rules, snapshot.Layout) (*policy.Rules, error),
) []trace.Line {
	t.Helper()
	lines, err := Scenario(name)
	if err != nil {
		t.Fatal(err)
	}
	var recorded []trace.Line
	w, state := newWorld(false), policy.State{}
	for i := range lines {
		r, _ := rules(lines[i].Input.Rules, lines[i].Input.Snapshot.Layout)
		s := w.adjust(lines[i].Input)
		var d policy.Decision
		before := state
		d, state = policy.Decide(s, r, before)
		w.plan(&d, s, r)
		described := trace.Describe(&trace.Round{Trigger: "timer", Snapshot: s, Rules: r, State: &before, Decision: &d})
		recorded = append(recorded, trace.Line{Trace: debugv1alpha1.PressureTrace{Decision: &described},
			Input: &trace.Input{Snapshot: s, Rules: r, State: &before}})
	}
	return recorded
}

func uids(list []Eviction) (all []string) {
	for _, e := range list {
		all = append(all, e.Name)
	}
	return all
}

func TestScenarios(t *testing.T) {
	for name, tc := range map[string]struct {
		signal snapshot.Signal
		amount string
		want   []string
	}{
		"leak":      {snapshot.MemoryAvailable, "1Gi", []string{"pod-00"}},
		"burst":     {snapshot.MemoryAvailable, "1Gi", []string{"pod-00"}},
		"disk-fill": {snapshot.NodeFsAvailable, "10Gi", []string{"pod-00"}},
		"fork-bomb": {snapshot.PIDAvailable, "1000", []string{"pod-00"}},
	} {
		lines, err := Scenario(name)
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, lines, Settings{Rules: below(tc.signal, tc.amount), Signal: tc.signal})
		if got := uids(r.Planned); !slices.Equal(got, tc.want) || !r.Changed || len(r.Recorded) > 0 {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		if len(r.Course) != scenarioSteps {
			t.Errorf("%s: %d points", name, len(r.Course))
		}
	}
	if _, err := Scenario("flood"); err == nil {
		t.Error("an unknown scenario was made")
	}
	lines, err := Scenario("many-leaks")
	if err != nil {
		t.Fatal(err)
	}
	if r := run(t, lines, Settings{Rules: below(snapshot.MemoryAvailable, "6Gi")}); len(r.Planned) < 2 {
		t.Errorf("many leaks: %q", uids(r.Planned))
	}
}

// The same settings give the recorded decisions.
func TestTheSameSettingsGiveTheRecordedDecisions(t *testing.T) {
	for _, name := range []string{"leak", "burst", "many-leaks"} {
		rules := below(snapshot.MemoryAvailable, "2Gi")
		for _, settings := range []Settings{{}, {Rules: rules}} {
			r := run(t, recordedOf(t, name, rules), settings)
			if r.Changed || len(r.Different) > 0 || r.Skipped > 0 || r.Decisions != scenarioSteps || len(r.Recorded) == 0 {
				t.Errorf("%s: %d decisions, different %v, changed %t, %d evictions", name, r.Decisions, r.Different, r.Changed,
					len(r.Recorded))
			}
			for _, p := range r.Pairs() {
				if p.Outcome() != "Same" {
					t.Errorf("%s: %+v", name, p)
				}
			}
		}
	}
}

// A plan with another threshold decides as a node that has it.
func TestAPlanDecidesAsANodeWithItsSettings(t *testing.T) {
	for _, name := range []string{"leak", "burst"} {
		low, high := below(snapshot.MemoryAvailable, "1Gi"), below(snapshot.MemoryAvailable, "4Gi")
		plan := run(t, recordedOf(t, name, low), Settings{Rules: high})
		real := run(t, recordedOf(t, name, high), Settings{})
		if len(plan.Planned) == 0 || len(plan.Planned) != len(real.Recorded) {
			t.Fatalf("%s: planned %q, real %q", name, uids(plan.Planned), uids(real.Recorded))
		}
		for i := range plan.Planned {
			a, b := plan.Planned[i], real.Recorded[i]
			if a.UID != b.UID || !a.Time.Equal(b.Time) {
				t.Errorf("%s: planned %s at %s, real %s at %s", name, a.Name, a.Time, b.Name, b.Time)
			}
		}
		if p := plan.Pairs(); p[0].Outcome() != "Earlier" && name == "leak" {
			t.Errorf("%s: %s", name, p[0].Outcome())
		}
	}
}

// A pod that is spared goes on using what it used, or goes on growing.
func TestSparedPods(t *testing.T) {
	recorded := recordedOf(t, "leak", below(snapshot.MemoryAvailable, "4Gi"))
	hold := run(t, recorded, Settings{Rules: below(snapshot.MemoryAvailable, "1Gi")})
	if len(hold.Planned) > 0 || hold.Pairs()[0].Outcome() != "Spared" || !hold.ExhaustedAt.IsZero() {
		t.Errorf("%+v", hold.Planned)
	}
	last := hold.Course[len(hold.Course)-1]
	if last.Planned >= last.Recorded || last.Planned > 4*gi {
		t.Errorf("%+v", last)
	}
	grows := run(t, recorded, Settings{Rules: below(snapshot.MemoryAvailable, "1Gi"), GrowSpared: true})
	if len(grows.Planned) != 1 || grows.Pairs()[0].Outcome() != "Later" {
		t.Errorf("%+v", grows.Planned)
	}
	never := run(t, recorded, Settings{Rules: below(snapshot.PIDAvailable, "1"), GrowSpared: true})
	if never.ExhaustedAt.IsZero() {
		t.Error("a leak that is spared uses up the memory")
	}
}

func TestAPlanIsDeterministic(t *testing.T) {
	var first []byte
	for range 5 {
		r := run(t, recordedOf(t, "many-leaks", below(snapshot.MemoryAvailable, "2Gi")),
			Settings{Rules: below(snapshot.MemoryAvailable, "5Gi"), GrowSpared: true})
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		}
		if string(text) != string(first) {
			t.Fatal("the same plan has another result")
		}
	}
}

// Records whose state is missing are skipped, not guessed.
func TestGapsAreSkipped(t *testing.T) {
	lines := recordedOf(t, "leak", below(snapshot.MemoryAvailable, "2Gi"))
	for i := range lines {
		if i%10 != 0 {
			lines[i].Input.State = nil
		}
	}
	lines = slices.Delete(lines, 25, 26)
	r := run(t, lines, Settings{})
	if r.Skipped != 4 || len(r.Different) > 0 || r.Decisions != scenarioSteps-5 {
		t.Errorf("%d skipped, %d made again, different %v", r.Skipped, r.Decisions, r.Different)
	}
}

// A decision that is recorded otherwise than it is made again is reported.
func TestDifferencesAreReported(t *testing.T) {
	lines := recordedOf(t, "leak", below(snapshot.MemoryAvailable, "2Gi"))
	changed := *lines[7].Trace.Decision
	changed.Conditions = slices.Clone(changed.Conditions)
	changed.Conditions[0].True = !changed.Conditions[0].True
	lines[7].Trace.Decision = &changed
	if r := run(t, lines, Settings{}); !slices.Equal(r.Different, []uint64{8}) {
		t.Errorf("%v", r.Different)
	}
}

// A pod that the plan evicts later than reality uses memory until it has ended.
func TestMemoryComesFreeWhenThePodHasEnded(t *testing.T) {
	recorded := recordedOf(t, "leak", below(snapshot.MemoryAvailable, "4Gi"))
	r := run(t, recorded, Settings{Rules: below(snapshot.MemoryAvailable, "1Gi"), GrowSpared: true})
	if len(r.Planned) != 1 || r.Pairs()[0].Outcome() != "Later" {
		t.Fatalf("%+v", r.Planned)
	}
	evicted := slices.IndexFunc(r.Course, func(p Point) bool { return p.Time.Equal(r.Planned[0].Time) })
	at := func(seconds int) int64 { return r.Course[evicted+seconds].Planned }
	if at(0) >= gi || at(2) >= gi {
		t.Errorf("%d MiB are available when the pod is evicted, and %d two seconds later", at(0)/mi, at(2)/mi)
	}
	ended := int(goneAfter(&policy.Victim{GraceSeconds: 0}, recorded[0].Input.Rules) / scenarioStep)
	if at(ended+1) < 4*gi {
		t.Errorf("%d MiB are available after the pod has ended", at(ended+1)/mi)
	}
}

// A pod that a dry run reported, and that was evicted after that, was evicted; one that only one of both would have
// evicted is spared or additional.
func TestDryRunIsNoEviction(t *testing.T) {
	dry, real := Eviction{UID: "a", Time: scenarioStart, DryRun: true}, Eviction{UID: "a", Time: scenarioStart.Add(1)}
	for _, tc := range []struct {
		recorded, planned []Eviction
		want              string
	}{
		{[]Eviction{dry, real}, []Eviction{dry, real}, "Same"},
		{[]Eviction{dry, real}, []Eviction{dry}, "Spared"},
		{[]Eviction{dry}, []Eviction{dry, real}, "Additional"},
		{[]Eviction{dry}, []Eviction{real}, "Additional"},
		{[]Eviction{dry}, []Eviction{dry}, "Same"},
		{[]Eviction{dry}, nil, "Spared"},
	} {
		r := Result{Recorded: tc.recorded, Planned: tc.planned}
		if p := r.Pairs(); len(p) != 1 || p[0].Outcome() != tc.want {
			t.Errorf("%+v: %+v", tc, p)
		}
	}
}

// Numbers of decisions begin again when the agent is restarted: equal ones are not the same decision.
func TestNumbersBeginAgain(t *testing.T) {
	w := newWorld(false)
	w.planned["a"] = &plannedEviction{decision: 7, at: scenarioStart}
	w.recorded["a"] = &recordedEviction{decision: 7, at: scenarioStart}
	if !w.common("a") {
		t.Error("the same decision is not found")
	}
	w.recorded["a"].at = scenarioStart.Add(scenarioStep)
	if w.common("a") {
		t.Error("decisions of two starts count as one")
	}
}
