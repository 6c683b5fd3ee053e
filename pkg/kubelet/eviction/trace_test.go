package eviction

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// traced is a sink that writes each round as the lines of a trace, reads them again, and makes the decision again.
type traced struct {
	decoder   trace.Decoder
	lines     int
	decisions int
	fault     string
}

func (*traced) Name() string                    { return "traced" }
func (*traced) Result(context.Context, *Result) {}

func (p *traced) Round(_ context.Context, r *Round) {
	if p.fault != "" {
		return
	}
	if err := p.replay(r); err != nil {
		p.fault = fmt.Sprintf("decision %d: %v", r.Decision.Number, err)
	}
}

func (p *traced) replay(r *Round) error {
	round := &trace.Round{Trigger: string(r.Trigger), Snapshot: r.Snapshot, Rules: r.Rules, State: r.State,
		Decision: &r.Decision}
	if p.lines == 0 {
		if _, err := p.line(&debugv1alpha1.PressureTrace{APIVersion: debugv1alpha1.PressureAPIVersion,
			Kind: debugv1alpha1.PressureTraceKind, Start: &debugv1alpha1.PressureTraceStart{Node: "n"}}); err != nil {
			return err
		}
	}
	rules, err := trace.EncodeRules(r.Rules)
	if err != nil {
		return err
	}
	if _, err := p.line(&debugv1alpha1.PressureTrace{Rules: &rules}); err != nil {
		return err
	}
	for i := range r.Snapshot.Pods {
		pod, err := trace.EncodePod(r.Snapshot.Pods[i].Facts)
		if err != nil {
			return err
		}
		if _, err := p.line(&debugv1alpha1.PressureTrace{Pod: &pod}); err != nil {
			return err
		}
	}
	d := trace.Describe(round)
	if d.Replay, err = trace.EncodeReplay(round, rules.ID, true, false); err != nil {
		return err
	}
	l, err := p.line(&debugv1alpha1.PressureTrace{Decision: &d})
	if err != nil {
		return err
	}
	again, _ := policy.Decide(l.Input.Snapshot, l.Input.Rules, *l.Input.State)
	described := trace.Describe(&trace.Round{Trigger: string(r.Trigger), Snapshot: l.Input.Snapshot, Rules: l.Input.Rules,
		State: l.Input.State, Decision: &again})
	d.Replay = nil
	if !reflect.DeepEqual(described, d) {
		return fmt.Errorf("%+v, was %+v", described, d)
	}
	p.decisions++
	return nil
}

func (p *traced) line(t *debugv1alpha1.PressureTrace) (trace.Line, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return trace.Line{}, err
	}
	p.lines++
	return p.decoder.Decode(text)
}

// TestDecisionsFromTheirTrace plays random sequences, with annotations and requests of plugins, to our manager, and
// makes its decisions again from what a trace has of them.
func TestDecisionsFromTheirTrace(t *testing.T) {
	decisions := 0
	for seed := range int64(sequences(t, replays)) {
		p := newPlay(seed)
		thresholds, err := settings.ParseThresholds(p.settings)
		if err != nil {
			t.Fatal(err)
		}
		r := &traced{}
		asked, random := &asking{}, rand.New(rand.NewSource(seed))
		ours, err := newOurs(Config{
			Kubelet: p.kubelet(thresholds), Features: stockFeatures(), Sinks: []Sink{r}, Requests: asked.get,
		}, p.dedicated, p.split, p.now)
		if err != nil {
			t.Fatal(err)
		}
		effective, _ := policy.Effective(thresholds, layoutOf(p))
		for step := range 12 {
			sc := p.advance(effective, step)
			if seed%2 == 0 {
				asked.requests = randomRequests(random, sc.pods, p.now)
			}
			done := ours.step(context.Background(), sc, p.now)
			if r.fault != "" {
				t.Fatalf("seed %d step %d: %s", seed, step, r.fault)
			}
			p.remove(done.victims, sc)
		}
		decisions += r.decisions
	}
	if decisions < 100 {
		t.Errorf("only %d decisions", decisions)
	}
}
