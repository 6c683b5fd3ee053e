package decisionlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Outcomes of admissions.
const (
	Rejected = "Rejected"
	Waiting  = "Waiting"
)

// stateEvery: at least one of so many successive records has the state before its decision.
const stateEvery = 16

// Config is the configuration of a Log. Node, Clock and LimitBytes are required.
type Config struct {
	Node  string
	Clock clock.PassiveClock
	// LimitBytes bounds the records in memory.
	LimitBytes int64
	// Disk writes records to files; nil if that is not configured.
	Disk *Disk
	// Waiting returns the pods that wait for admission, Plugins the eviction plugins; may be nil.
	Waiting func() []debugv1alpha1.PressurePod
	Plugins func() []debugv1alpha1.PressurePlugin
}

// Log is the decision log. It is a sink of the eviction manager; its other methods are safe for concurrent use.
type Log struct {
	Config
	// changes belongs to the goroutine that decides.
	changes changes
	// newest is the last round, detailed the last one with all pods.
	newest, detailed lastRound

	// What follows belongs to the goroutine of the sink.

	compressor compressor
	// rules are the encoded rules, those of the last round.
	rules        *policy.Rules
	encodedRules debugv1alpha1.PressureTraceRules
	// last is the number of the last record of a decision, sinceState how many there were since the last state.
	last       uint64
	sinceState int
	// recorded is the last record, kept the facts of pods as records have them.
	recorded changes
	kept     keptFacts

	mu       sync.Mutex
	ring     *ring
	watchers watchers
}

var _ eviction.Sink = (*Log)(nil)

// New returns an empty log.
func New(c Config) *Log {
	registerMetrics()
	return &Log{Config: c, ring: newRing(c.LimitBytes)}
}

// Name implements eviction.Sink.
func (*Log) Name() string { return "decision-log" }

// Recorded is eviction.Config.Recorded. Only the goroutine that decides may call it.
func (l *Log) Recorded(s *snapshot.Snapshot) bool { return l.changes.snapshotDue(s) }

// NeedsRound reports whether the round is kept. Only the goroutine that decides may call it.
func (l *Log) NeedsRound(r *eviction.Round) bool {
	l.newest.set(r)
	if r.AllPods {
		l.detailed.set(r)
	}
	return l.changes.keeps(r)
}

// Round implements eviction.Sink: it records the round.
func (l *Log) Round(ctx context.Context, r *eviction.Round) {
	if err := l.record(r); err != nil {
		recordsLost.WithLabelValues(lostEncoding).Inc()
		klog.FromContext(ctx).Error(err, "Decision log: decision cannot be recorded", "decision", r.Decision.Number)
	}
}

func roundOf(r *eviction.Round, before *policy.State) *trace.Round {
	return &trace.Round{
		Trigger: string(r.Trigger), MemoryRead: r.MemoryRead, Snapshot: r.Snapshot, Rules: r.Rules, State: before,
		Decision: &r.Decision,
	}
}

// lastRound is the last of some rounds, with a copy of the state before its decision. Its methods are safe for
// concurrent use.
type lastRound struct {
	mu    sync.Mutex
	round *eviction.Round
	state policy.State
}

func (l *lastRound) set(r *eviction.Round) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.round, l.state = r, *r.State
}

// get returns nil if there was no round yet.
func (l *lastRound) get() *trace.Round {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.round == nil {
		return nil
	}
	return roundOf(l.round, new(l.state))
}

// wallTime returns the time of day of a time on the monotonic clock; false before the first round.
func (l *lastRound) wallTime(t time.Time) (time.Time, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.round == nil {
		return time.Time{}, false
	}
	return l.round.Decision.WallTimeOf(t), true
}

func (l *Log) record(r *eviction.Round) error {
	described := trace.Describe(roundOf(r, r.State))
	described.Heartbeat = l.isHeartbeat(r)
	if l.rules != r.Rules {
		encoded, err := trace.EncodeRules(r.Rules)
		if err != nil {
			return err
		}
		l.rules, l.encodedRules = r.Rules, encoded
	}
	// A decision that acts is kept for longer than those before it.
	withState := l.last == 0 || l.last+1 != r.Decision.Number || l.sinceState >= stateEvery || acts(&r.Decision)
	withState = l.Disk.wantsState() || withState || r.StateReplaced
	replay, err := trace.EncodeReplay(roundOf(r, r.State), l.encodedRules.ID, withState, !r.AllPods)
	if err != nil {
		return err
	}
	text, err := json.Marshal(&described)
	if err != nil {
		return fmt.Errorf("decision: %w", err)
	}
	replayText, err := json.Marshal(replay)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	if l.sinceState++; withState {
		l.sinceState = 0
	}
	l.last = r.Decision.Number
	pods := l.kept.of(r.Snapshot.Pods, r.AllPods)
	kept := &record{
		time: r.Decision.WallTime, number: r.Decision.Number, rules: l.encodedRules.ID,
		decision: l.compressor.compress(text), replay: l.compressor.compress(replayText), withState: withState,
		acts: acts(&r.Decision), pods: pods, involved: involvedIn(r, pods),
	}
	rules := l.encodedRules
	l.Disk.decision(diskDecision{
		rules: rules, pods: pods, allPods: r.AllPods, text: decisionLine(text, replayText), withState: withState,
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ring.add(kept, &rules)
	l.measure()
	l.watchers.send(Event{Name: "decision", ID: r.Decision.Number, Data: text})
	return nil
}

// decisionLine returns the line of a decision: the JSON of a PressureTrace.
func decisionLine(decision, replay []byte) []byte {
	// The text of a decision is an object that is not empty.
	line := append([]byte(`{"decision":`), decision[:len(decision)-1]...)
	line = append(append(line, `,"replay":`...), replay...)
	return append(line, "}}\n"...)
}

// isHeartbeat reports whether a round is kept only because the last record is a minute old. The next one is compared
// with this one.
func (l *Log) isHeartbeat(r *eviction.Round) bool {
	d := &r.Decision
	changed := l.last == 0 || acts(d) || len(d.Needs) > 0 || len(d.DryRun.Needs) > 0 || l.recorded.changed(r) ||
		l.recorded.moved(r.Snapshot)
	l.recorded.remember(r)
	return !changed
}

// keptFacts are the facts of pods as records have them, by those of the last snapshots, if they differ.
type keptFacts map[*snapshot.Facts]*snapshot.Facts

// of returns the facts of pods, with those annotations only that decisions use, and of their texts what decisions use:
// who may annotate a pod must not thereby fill the memory. all is true if these are all pods of the node.
func (k *keptFacts) of(pods []snapshot.Pod, all bool) []*snapshot.Facts {
	last := *k
	if all || last == nil {
		*k = keptFacts{}
	}
	list := make([]*snapshot.Facts, len(pods))
	for i := range pods {
		f := pods[i].Facts
		if list[i] = f; len(f.Annotations) == 0 {
			continue
		}
		if list[i] = last[f]; list[i] == nil {
			short := *f
			short.Annotations = trace.Annotations(policy.EvictionPreference(f.Annotations))
			list[i] = &short
		}
		(*k)[f] = list[i]
	}
	return list
}

// involvedIn returns the pods that a decision is about: all while there is a need, otherwise victims, those in flight,
// those that plugins request, and those whose eviction is withdrawn. pods are those of the snapshot.
func involvedIn(r *eviction.Round, pods []*snapshot.Facts) (list []*snapshot.Facts) {
	if len(r.Decision.Needs) > 0 || len(r.Decision.DryRun.Needs) > 0 {
		return pods
	}
	involved := map[types.UID]bool{}
	for i := range r.Decision.Victims {
		involved[r.Decision.Victims[i].Pod.UID] = true
	}
	for i := range r.Decision.DryRun.Victims {
		involved[r.Decision.DryRun.Victims[i].Pod.UID] = true
	}
	for i := range r.Snapshot.InFlight {
		involved[r.Snapshot.InFlight[i].UID] = true
	}
	for i := range r.Snapshot.Requests {
		involved[r.Snapshot.Requests[i].UID] = true
	}
	for _, uid := range r.Decision.Withdrawn {
		involved[uid] = true
	}
	if len(involved) == 0 {
		return nil
	}
	for _, f := range pods {
		if involved[f.UID] {
			list = append(list, f)
		}
	}
	return list
}

// Result implements eviction.Sink: it records what became of a decision.
func (l *Log) Result(_ context.Context, r *eviction.Result) {
	o := outcomeOfResult(r, l.wallTime(r.At))
	l.mu.Lock()
	found := l.ring.addOutcome(&o)
	l.measure()
	l.mu.Unlock()
	if !found {
		recordsLost.WithLabelValues(lostDecisionGone).Inc()
	}
	l.publish("outcome", o.Decision, &debugv1alpha1.PressureTrace{Outcome: &o}, &o)
}

// wallTime converts a time on the monotonic clock of the eviction manager.
func (l *Log) wallTime(t time.Time) time.Time {
	if at, ok := l.newest.wallTime(t); ok && !t.IsZero() {
		return at
	}
	return l.Clock.Now()
}

// publish sends something other than a decision to the disk and to watchers.
func (l *Log) publish(name string, id uint64, line *debugv1alpha1.PressureTrace, value any) {
	text, err := json.Marshal(line)
	if err == nil {
		l.Disk.line(append(text, '\n'))
	}
	data, dataErr := json.Marshal(value)
	if err := errors.Join(err, dataErr); err != nil {
		recordsLost.WithLabelValues(lostEncoding).Inc()
		klog.Background().Error(err, "Failed to record what became of a decision", "kind", name, "id", id)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.watchers.empty() {
		l.watchers.send(Event{Name: name, ID: id, Data: data})
	}
}

// Admission records a pod that is not admitted: outcome is Rejected or Waiting. It returns at once.
func (l *Log) Admission(pod *v1.Pod, outcome, reason, message string) {
	a := &debugv1alpha1.PressureAdmission{
		PressurePod: named(pod), Time: l.Clock.Now(), Outcome: outcome, Reason: trace.Cut(reason),
		Message: trace.Cut(message),
	}
	l.mu.Lock()
	l.ring.add(&record{time: a.Time, admission: a}, nil)
	l.measure()
	l.mu.Unlock()
	l.publish("admission", 0, &debugv1alpha1.PressureTrace{Admission: a}, a)
}

func named(pod *v1.Pod) debugv1alpha1.PressurePod {
	return debugv1alpha1.PressurePod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

func allNamed(pods []*v1.Pod) (list []debugv1alpha1.PressurePod) {
	for _, pod := range pods {
		list = append(list, named(pod))
	}
	return list
}

// Preemption records a plan to stop and await pods for a critical pod, or why there is none. It returns at once.
func (l *Log) Preemption(pod *v1.Pod, stop, await []*v1.Pod, err error) {
	p := &debugv1alpha1.PressurePreemption{
		PressurePod: named(pod), Time: l.Clock.Now(), Stop: allNamed(stop), Await: allNamed(await),
	}
	if err != nil {
		p.Error = trace.Cut(err.Error())
	}
	l.mu.Lock()
	l.ring.add(&record{time: p.Time, preemption: p}, nil)
	l.measure()
	l.mu.Unlock()
	l.publish("preemption", 0, &debugv1alpha1.PressureTrace{Preemption: p}, p)
}
