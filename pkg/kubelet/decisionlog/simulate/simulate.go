package simulate

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Settings are those of a plan.
type Settings struct {
	// Rules returns the rules of the plan for a node with these recorded rules and this layout; nil for the recorded ones.
	Rules func(recorded *policy.Rules, layout snapshot.Layout) (*policy.Rules, error)
	// GrowSpared: pods that the plan spares go on growing as they did when they were evicted in reality.
	GrowSpared bool
	// Signal is the one whose course is returned; memory.available if it is NoSignal.
	Signal snapshot.Signal
}

// Simulation makes the decisions of one trace again.
type Simulation struct {
	settings Settings
	result   Result

	// number is that of the last decision that was made again, state that after it; known is false without one.
	number uint64
	state  policy.State
	known  bool

	// changed: the rules of the plan differ from the recorded ones, or have done so. Then planned is the state of the
	// plan.
	changed bool
	planned policy.State
	world   world

	// rules are those of the plan for recordedRules and layout.
	recordedRules *policy.Rules
	layout        snapshot.Layout
	rules         *policy.Rules
	same          bool
}

// New returns a simulation of nothing yet.
func New(settings Settings) *Simulation {
	if settings.Signal == snapshot.NoSignal {
		settings.Signal = snapshot.MemoryAvailable
	}
	return &Simulation{settings: settings, world: newWorld(settings.GrowSpared)}
}

// Add adds the next line of the trace. Lines that are no decisions, or cannot be made again, change nothing.
func (s *Simulation) Add(l *trace.Line) error {
	d := l.Trace.Decision
	if d == nil {
		return nil
	}
	if l.Input == nil {
		s.result.Skipped++
		return nil
	}
	in := *l.Input
	restarted := d.Number <= s.number
	switch {
	case in.State != nil:
		s.state = *in.State
	case !s.known || d.Number != s.number+1:
		s.result.Skipped++
		s.known = false
		return nil
	}
	before := s.state
	again, next := policy.Decide(in.Snapshot, in.Rules, before)
	s.number, s.state, s.known = d.Number, next, true
	s.result.observe(d)
	if !isSame(d, &in, &before, &again) {
		s.result.Different = append(s.result.Different, d.Number)
	}
	s.world.record(d, in.Snapshot)
	return s.plan(d, &in, &before, &again, restarted)
}

// plan makes the decision of the plan.
func (s *Simulation) plan(
	d *debugv1alpha1.PressureDecision, in *trace.Input, before *policy.State, again *policy.Decision, restarted bool,
) error {
	if err := s.rulesFor(in); err != nil {
		return err
	}
	if !s.changed && s.same {
		s.result.add(again, in.Snapshot, s.settings.Signal, in.Snapshot, in.Rules)
		s.world.plan(again, in.Snapshot, in.Rules)
		return nil
	}
	if !s.changed || restarted {
		s.changed, s.planned = true, *before
	}
	seen := s.world.adjust(in)
	var decision policy.Decision
	decision, s.planned = policy.Decide(seen, s.rules, s.planned)
	decision.Number = d.Number
	s.world.plan(&decision, seen, s.rules)
	s.result.add(&decision, seen, s.settings.Signal, in.Snapshot, s.rules)
	return nil
}

// rulesFor sets the rules of the plan.
func (s *Simulation) rulesFor(in *trace.Input) (err error) {
	if s.rules != nil && s.recordedRules == in.Rules && s.layout == in.Snapshot.Layout {
		return nil
	}
	s.recordedRules, s.layout, s.rules, s.same = in.Rules, in.Snapshot.Layout, in.Rules, true
	if s.settings.Rules == nil {
		return nil
	}
	if s.rules, err = s.settings.Rules(in.Rules, in.Snapshot.Layout); err != nil {
		return err
	}
	a, err := json.Marshal(s.rules)
	if err != nil {
		return err
	}
	b, err := json.Marshal(in.Rules)
	s.same = bytes.Equal(a, b)
	return err
}

// isSame reports whether a decision that was made again is the recorded one. Messages are not compared: a program of
// another version may say the same in other words.
func isSame(d *debugv1alpha1.PressureDecision, in *trace.Input, state *policy.State, again *policy.Decision) bool {
	described := trace.Describe(&trace.Round{
		Trigger: d.Trigger, Snapshot: in.Snapshot, Rules: in.Rules, State: state, Decision: again,
	})
	// What is about the arguments, and not about the decision, is the same in any case or is not recorded.
	recorded := *d
	for _, x := range []*debugv1alpha1.PressureDecision{&described, &recorded} {
		x.Replay, x.Outcomes, x.Heartbeat, x.Signals, x.Rankings = nil, nil, false, nil, nil
		x.APIVersion, x.Kind = "", ""
		x.Victims = slices.Clone(x.Victims)
		for i := range x.Victims {
			x.Victims[i].Message = ""
		}
	}
	a, err := json.Marshal(&described)
	b, err2 := json.Marshal(&recorded)
	return err == nil && err2 == nil && bytes.Equal(a, b)
}

// Result returns what was found so far.
func (s *Simulation) Result() *Result {
	r := s.result
	r.Changed = s.changed
	r.ExhaustedAt = s.world.exhausted
	r.Signal = s.settings.Signal.String()
	return &r
}

// podKey identifies a pod.
type podKey = types.UID

// goneAfter returns how long the plan assumes that a victim takes to end.
func goneAfter(v *policy.Victim, rules *policy.Rules) time.Duration {
	return max(rules.Timing.KillTime, time.Duration(min(v.GraceSeconds, maxGraceSeconds))*time.Second)
}

// maxGraceSeconds bounds grace periods, so that sums of durations do not overflow.
const maxGraceSeconds = 365 * 24 * 60 * 60
