package eviction

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// replay is a sink that makes each decision of a manager again, from a snapshot, rules and a state that were written
// and read. Decision and next state must be the same as from the originals, and the decision that of the manager.
// Beside the manager's rules there are others in dry run.
type replay struct {
	rules policy.Rules
	// state is the one that was made by the last decision from what was written and read.
	state policy.State
	// decisions were made, dryRun of them had victims in dry run, requested of them victims that plugins request.
	decisions, dryRun, requested int
	// fault is the first difference.
	fault string
}

// newReplay replays a manager with this configuration and default options, with limits on local storage in dry run if
// that is wanted.
func newReplay(c *Config, limitsInDryRun bool) *replay {
	p := &replay{rules: c.Rules(new(settings.DefaultOptions()))}
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
	taken, writtenRules, state, err := written(r.Snapshot, &rules, &p.state)
	if err != nil {
		p.fault = err.Error()
		return
	}
	want, wantNext := policy.Decide(r.Snapshot, &rules, p.state)
	got, gotNext := policy.Decide(taken, &writtenRules, state)
	p.expectSnapshot(taken, r.Snapshot)
	p.expect("the decision", got, want)
	p.expect("the next state", gotNext, wantNext)
	if p.decisions++; len(got.DryRun.Victims) > 0 {
		p.dryRun++
	}
	if slices.ContainsFunc(got.Victims, func(v policy.Victim) bool { return v.Cause.Kind == policy.PluginRequest }) {
		p.requested++
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

// written returns a snapshot, rules and a state that were written and read.
func written(s *snapshot.Snapshot, r *policy.Rules, state *policy.State) (
	taken *snapshot.Snapshot, rules policy.Rules, before policy.State, err error) {
	var texts [3][]byte
	for i, v := range []any{s, r, state} {
		if texts[i], err = json.Marshal(v); err != nil {
			return taken, rules, before, err
		}
	}
	if taken, err = snapshot.Decode(texts[0]); err != nil {
		return taken, rules, before, err
	}
	if rules, err = policy.DecodeRules(texts[1]); err != nil {
		return taken, rules, before, err
	}
	before, err = policy.DecodeState(texts[2])
	return taken, rules, before, err
}

// expectSnapshot expects a snapshot that was written and read to be the original. Only the text of an
// error comes back, and the observation of NoSignal does not.
func (p *replay) expectSnapshot(got, want *snapshot.Snapshot) {
	g, w := *got, *want
	g.Reclaims, w.Reclaims = slices.Clone(g.Reclaims), slices.Clone(w.Reclaims)
	g.Signals[snapshot.NoSignal], w.Signals[snapshot.NoSignal] = snapshot.Observation{}, snapshot.Observation{}
	for i := range w.Signals {
		p.expectError(&g.Signals[i].Err, &w.Signals[i].Err)
	}
	for i := range min(len(w.Reclaims), len(g.Reclaims)) {
		p.expectError(&g.Reclaims[i].Err, &w.Reclaims[i].Err)
	}
	p.expect("the snapshot", g, w)
}

// expectError expects an error with the same text, and takes both away.
func (p *replay) expectError(got, want *error) {
	p.expect("an error", fmt.Sprint(*got), fmt.Sprint(*want))
	*got, *want = nil, nil
}

// randomRequests requests the eviction of up to two of the pods, and sometimes of one that is not there.
func randomRequests(r *rand.Rand, pods []*v1.Pod, now time.Time) (list []snapshot.Request) {
	for _, i := range r.Perm(len(pods) + 1)[:min(r.Intn(3), len(pods)+1)] {
		q := snapshot.Request{UID: "foreign", Plugins: []string{"p", "q"}[:1+r.Intn(2)], Scope: "memory",
			Forced: r.Intn(2) == 0, Reason: "p: random", Since: now}
		if i < len(pods) {
			q.UID = pods[i].UID
		}
		if r.Intn(2) == 0 {
			q.GraceSeconds = new(int64(1 + r.Intn(60)))
		}
		list = append(list, q)
	}
	return list
}

// TestDecisionsFromWhatWasWritten plays the random sequences of TestLikeStock to our manager and replays its decisions.
// In every second sequence plugins request evictions.
func TestDecisionsFromWhatWasWritten(t *testing.T) {
	decisions, dryRun, requested := 0, 0, 0
	for seed := range int64(sequences(t, replays)) {
		p := newPlay(seed)
		thresholds, err := settings.ParseThresholds(p.settings)
		if err != nil {
			t.Fatal(err)
		}
		c := Config{Kubelet: p.kubelet(thresholds), Features: stockFeatures()}
		r := newReplay(&c, seed%2 == 0)
		c.Sinks = []Sink{r}
		asked, random := &asking{}, rand.New(rand.NewSource(seed))
		c.Requests = asked.get
		ours, err := newOurs(c, p.dedicated, p.split, p.now)
		if err != nil {
			t.Fatal(err)
		}
		effective, _ := policy.Effective(thresholds, layoutOf(p))
		for step := range 12 {
			sc := p.advance(effective, step)
			if seed/2%2 == 0 {
				asked.requests = randomRequests(random, sc.pods, p.now)
			}
			done := ours.step(context.Background(), sc, p.now)
			if r.fault != "" {
				t.Fatalf("seed %d step %d: %s", seed, step, r.fault)
			}
			p.remove(done.victims, sc)
		}
		decisions, dryRun, requested = decisions+r.decisions, dryRun+r.dryRun, requested+r.requested
	}
	t.Logf("%d decisions, %d with victims in dry run, %d with victims that plugins request", decisions, dryRun, requested)
	if dryRun < decisions/10 || requested < decisions/10 {
		t.Error("the sequences exercise too little")
	}
}
