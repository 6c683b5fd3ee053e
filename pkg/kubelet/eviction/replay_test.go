package eviction

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

// replay is a sink that makes each decision of a manager again, from a snapshot and a state that were written and read.
// Decision and next state must be the same as from the originals, and the decision that of the manager. Beside the
// manager's rules there are others in dry run.
type replay struct {
	rules policy.Rules
	// state is the one that was made by the last decision from what was written and read.
	state policy.State
	// decisions were made, dryRun of them had victims in dry run.
	decisions, dryRun int
	// fault is the first difference.
	fault string
}

// newReplay replays a manager with this configuration and default options, with limits on local storage in dry run if
// that is wanted.
func newReplay(c *Config, limitsInDryRun bool) *replay {
	p := &replay{rules: c.rules(new(DefaultOptions()))}
	p.rules.LocalStorageDryRun = p.rules.LocalStorageLimits && limitsInDryRun
	return p
}

func (*replay) Name() string                    { return "replay" }
func (*replay) Result(context.Context, *Result) {}

func (p *replay) Round(_ context.Context, r *Round) {
	if p.fault != "" {
		return
	}
	rules := p.rules
	rules.Thresholds, _ = policy.Effective(p.rules.Thresholds, r.Snapshot.Layout)
	rules.Thresholds = append(rules.Thresholds, inDryRun(rules.Thresholds)...)
	state, err := writtenState(p.state)
	if err != nil {
		p.fault = err.Error()
		return
	}
	want, wantNext := policy.Decide(r.Snapshot, &rules, p.state)
	got, gotNext := policy.Decide(r.Snapshot, &rules, state)
	p.expect("the decision", got, want)
	p.expect("the next state", gotNext, wantNext)
	if p.decisions++; len(got.DryRun.Victims) > 0 {
		p.dryRun++
	}
	if p.state = gotNext; !rules.LocalStorageDryRun {
		want.DryRun = policy.DryRun{}
		p.expect("the manager's decision", r.Decision, want)
	}
}

func (p *replay) expect(what string, got, want any) {
	if p.fault == "" && !reflect.DeepEqual(got, want) {
		everything := cmp.Exporter(func(reflect.Type) bool { return true })
		p.fault = fmt.Sprintf("%s differs (-want +got):\n%s", what, cmp.Diff(want, got, everything))
	}
}

// inDryRun are thresholds like the given ones, which are met earlier.
func inDryRun(thresholds []policy.Threshold) []policy.Threshold {
	list := make([]policy.Threshold, 0, len(thresholds))
	for _, t := range thresholds {
		t.DryRun = true
		if q := t.Value.Quantity; q != nil {
			t.Value.Quantity = resource.NewQuantity(q.Value()/4*5, q.Format)
		} else {
			t.Value = evictionapi.ThresholdValue{Percentage: t.Value.Percentage * 5 / 4}
		}
		list = append(list, t)
	}
	return list
}

func writtenState(s policy.State) (policy.State, error) {
	data, err := json.Marshal(&s)
	if err != nil {
		return policy.State{}, err
	}
	return policy.DecodeState(data)
}

// TestDecisionsFromWhatWasWritten plays the random sequences of TestLikeStock to our manager and replays its decisions.
func TestDecisionsFromWhatWasWritten(t *testing.T) {
	decisions, dryRun := 0, 0
	for seed := range int64(sequences(t, replays)) {
		p := newPlay(seed)
		thresholds, err := ParseThresholds(p.settings)
		if err != nil {
			t.Fatal(err)
		}
		c := Config{
			Thresholds: thresholds, PressureTransitionPeriod: p.transition, MaxPodGracePeriodSeconds: p.maxGrace,
			LocalStorageCapacityIsolation: p.limits,
		}
		r := newReplay(&c, seed%2 == 0)
		c.Sinks = []Sink{r}
		ours, err := newOurs(c, p.dedicated, p.split, p.now)
		if err != nil {
			t.Fatal(err)
		}
		effective, _ := policy.Effective(thresholds, layoutOf(p))
		for step := range 12 {
			sc := p.advance(effective, step)
			done := ours.step(context.Background(), sc, p.now)
			if r.fault != "" {
				t.Fatalf("seed %d step %d: %s", seed, step, r.fault)
			}
			p.remove(done.victims, sc)
		}
		decisions, dryRun = decisions+r.decisions, dryRun+r.dryRun
	}
	t.Logf("%d decisions, %d with victims in dry run", decisions, dryRun)
	if dryRun < decisions/10 {
		t.Error("the sequences exercise too little")
	}
}
