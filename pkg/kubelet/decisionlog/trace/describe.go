package trace

import (
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Round is a decision with the arguments that it was made from.
type Round struct {
	Trigger    string
	MemoryRead bool
	Snapshot   *snapshot.Snapshot
	Rules      *policy.Rules
	// State is that before the decision.
	State    *policy.State
	Decision *policy.Decision
}

// maxText is how much of a text of plugins, of the runtime or of errors is kept, in bytes.
const maxText = 1 << 10

// Cut returns the beginning of a text, at most 1 KiB: that of plugins, of the runtime and of errors has no bound.
func Cut(text string) string {
	if len(text) <= maxText {
		return text
	}
	n := maxText
	for n > 0 && text[n]&0xc0 == 0x80 { // not within a character
		n--
	}
	return text[:n]
}

// Describe returns the record of a decision, without its outcomes. It has the rankings of needs only.
func Describe(r *Round) debugv1alpha1.PressureDecision {
	d, w := r.Decision, describer{r}
	x := policy.Explain(r.Snapshot, r.Rules, *r.State)
	return debugv1alpha1.PressureDecision{
		Number: d.Number, Time: d.WallTime, Trigger: r.Trigger, RuntimeSilent: r.Snapshot.RuntimeSilent,
		Signals: w.signals(), Thresholds: w.thresholds(x.Thresholds), Conditions: w.conditions(), Needs: w.needs(),
		Rankings: w.rankings(x.Rankings, true), Victims: w.victims(), Reclaims: w.reclaims(), InFlight: w.inFlight(),
		Requests: w.requests(), Withdrawn: d.Withdrawn,
	}
}

// Status fills in the parts of a status that the last decision determines; detailed is the last decision about all
// pods, whose rankings are added if it is not nil.
func Status(status *debugv1alpha1.PressureStatus, r, detailed *Round) {
	d, w := r.Decision, describer{r}
	x := policy.Explain(r.Snapshot, r.Rules, *r.State)
	status.Observed, status.Decision, status.RuntimeSilent = d.WallTime, d.Number, r.Snapshot.RuntimeSilent
	status.Signals, status.Thresholds = w.signals(), w.thresholds(x.Thresholds)
	status.Conditions, status.Needs = w.conditions(), w.needs()
	status.InFlight, status.Requests = w.inFlight(), w.requests()
	for i := range d.DryRun.Victims {
		status.DryRun = append(status.DryRun, w.victim(&d.DryRun.Victims[i], true))
	}
	for i := range status.Signals {
		s := &status.Signals[i]
		if !s.Observed.IsZero() {
			s.AgeSeconds = max(0, status.Time.Sub(s.Observed).Seconds())
		}
	}
	if detailed != nil {
		all := policy.Explain(detailed.Snapshot, detailed.Rules, *detailed.State)
		status.Ranked = detailed.Decision.WallTime
		status.Rankings = (&describer{detailed}).rankings(all.Rankings, false)
	}
}

type describer struct{ *Round }

// wall converts a time on the monotonic clock. A zero time stays zero.
func (w *describer) wall(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return w.Decision.WallTimeOf(t)
}

func (w *describer) signals() []debugv1alpha1.PressureSignal {
	outlooks := w.Decision.Outlook
	if outlooks == nil {
		outlooks = policy.Outlook(w.Snapshot, w.Rules, *w.State)
	}
	list := []debugv1alpha1.PressureSignal{}
	for _, sig := range snapshot.AllSignals() {
		o := &w.Snapshot.Signals[sig]
		var outlook *policy.SignalOutlook
		for i := range outlooks {
			if outlooks[i].Signal == sig {
				outlook = &outlooks[i]
			}
		}
		if outlook == nil && !o.Known() && !w.hasThreshold(sig) {
			continue
		}
		list = append(list, w.signal(sig, o, outlook))
	}
	return list
}

func (w *describer) hasThreshold(sig snapshot.Signal) bool {
	for i := range w.Rules.Thresholds {
		if w.Rules.Thresholds[i].Signal == sig {
			return true
		}
	}
	return false
}

func (w *describer) signal(
	sig snapshot.Signal, o *snapshot.Observation, outlook *policy.SignalOutlook,
) debugv1alpha1.PressureSignal {
	s := debugv1alpha1.PressureSignal{Signal: sig.String(), Blind: !o.Known()}
	if o.Known() {
		s.Available, s.Capacity, s.Observed, s.Source = new(o.Available), new(o.Capacity), o.At, "summary"
		if w.MemoryRead && sig.Resource() == snapshot.MemoryAvailable.Resource() {
			s.Source = "kernel"
		}
	} else {
		s.Error = Cut(o.Err.Error())
	}
	if outlook == nil {
		return s
	}
	s.Level = string(outlook.Level)
	if outlook.Known {
		s.Threshold, s.Headroom, s.GrowthPerSecond = new(outlook.Threshold), new(outlook.Headroom), outlook.Growth
		if left := outlook.TimeToThreshold; left != nil {
			s.SecondsToThreshold = new(left.Seconds())
		}
	}
	return s
}

func (w *describer) thresholds(list []policy.ThresholdExplanation) []debugv1alpha1.PressureThreshold {
	var all []debugv1alpha1.PressureThreshold
	for i := range list {
		x := &list[i]
		t := debugv1alpha1.PressureThreshold{
			Signal: x.Signal.String(), Kind: "Hard", DryRun: x.DryRun, Value: valueText(&x.Value), Met: x.Met, Active: x.Active,
			GracePeriodSeconds:        x.GracePeriod.Seconds(),
			GracePeriodElapsedSeconds: min(x.GracePeriodElapsed, x.GracePeriod).Seconds(), NotMetSeconds: x.NotMetFor.Seconds(),
			UnknownSince: w.wall(x.UnknownSince),
		}
		if x.Soft {
			t.Kind = "Soft"
		}
		if x.MinReclaim != nil {
			t.MinimumReclaim = valueText(x.MinReclaim)
		}
		if x.Known {
			t.Amount, t.Target = new(x.Amount), new(x.Target)
		}
		all = append(all, t)
	}
	return all
}

func valueText(v *evictionapi.ThresholdValue) string {
	if v.Quantity != nil {
		return v.Quantity.String()
	}
	return strconv.FormatFloat(float64(v.Percentage)*100, 'g', 6, 32) + "%"
}

func (w *describer) conditions() []debugv1alpha1.PressureCondition {
	list := []debugv1alpha1.PressureCondition{}
	for i := range w.Decision.Conditions {
		c := &w.Decision.Conditions[i]
		condition := debugv1alpha1.PressureCondition{
			Type: string(c.Type), True: c.True, HardMet: c.HardMet, Restored: c.Restored, Since: w.wall(c.Since),
		}
		for _, sig := range c.UnknownSignals {
			condition.BlindSignals = append(condition.BlindSignals, sig.String())
		}
		list = append(list, condition)
	}
	return list
}

func (w *describer) needs() (list []debugv1alpha1.PressureNeed) {
	for i := range w.Decision.Needs {
		list = append(list, need(&w.Decision.Needs[i], false))
	}
	for i := range w.Decision.DryRun.Needs {
		list = append(list, need(&w.Decision.DryRun.Needs[i], true))
	}
	return list
}

func need(n *policy.NeedDecision, dryRun bool) debugv1alpha1.PressureNeed {
	return debugv1alpha1.PressureNeed{
		Signal: n.Signal.String(), Hard: n.Hard, DryRun: dryRun, Amount: n.Amount, InFlight: n.InFlight, Certain: n.Certain,
		Chosen: n.Chosen, PassedOver: n.PassedOver, Outcome: string(n.Outcome),
	}
}

func (w *describer) rankings(list []policy.Ranking, neededOnly bool) (all []debugv1alpha1.PressureRanking) {
	for i := range list {
		k := &list[i]
		if neededOnly && !k.Needed {
			continue
		}
		ranking := debugv1alpha1.PressureRanking{
			Signal: k.Signal.String(), Hard: k.Hard, DryRun: k.DryRun, Needed: k.Needed,
			Candidates: make([]debugv1alpha1.PressureCandidate, len(k.Candidates)),
		}
		for j := range k.Candidates {
			ranking.Candidates[j] = candidate(&k.Candidates[j])
		}
		all = append(all, ranking)
	}
	return all
}

func candidate(c *policy.Candidate) debugv1alpha1.PressureCandidate {
	p := debugv1alpha1.PressureCandidate{
		PressurePod: podOf(c.Pod.Facts), Priority: c.Pod.Priority, QOSClass: string(c.Pod.QOS), Request: c.Request,
		GrowthPerSecond: c.Growth, Preference: c.Preference, AboveRequest: c.AboveRequest, Terminating: c.Terminating,
		OptedOut: c.OptedOut, Reason: string(c.Reason),
	}
	if c.Known {
		p.Usage = new(c.Usage)
	}
	return p
}

func podOf(f *snapshot.Facts) debugv1alpha1.PressurePod {
	return debugv1alpha1.PressurePod{Namespace: f.Namespace, Name: f.Name, UID: f.UID}
}

func (w *describer) victims() (list []debugv1alpha1.PressureVictim) {
	for i := range w.Decision.Victims {
		list = append(list, w.victim(&w.Decision.Victims[i], false))
	}
	for i := range w.Decision.DryRun.Victims {
		list = append(list, w.victim(&w.Decision.DryRun.Victims[i], true))
	}
	return list
}

func (w *describer) victim(v *policy.Victim, dryRun bool) debugv1alpha1.PressureVictim {
	p := debugv1alpha1.PressureVictim{
		PressurePod: podOf(v.Pod.Facts), DryRun: dryRun, Cause: string(v.Cause.Kind), Limit: v.Cause.Limit,
		Plugins: v.Cause.Plugins, Since: w.wall(v.Since), GracePeriodSeconds: v.GraceSeconds,
		ExpectedMemoryBytes: int64(v.Expected.Memory), ExpectedPIDs: int64(v.Expected.PIDs), Hastened: v.Hasten,
		Killer: v.Killer.String(), Message: Cut(v.Message),
	}
	for d := range v.Expected.Devices {
		p.ExpectedDiskBytes += int64(v.Expected.Devices[d].Bytes)
	}
	if v.Cause.Signal != snapshot.NoSignal {
		p.Signal = v.Cause.Signal.String()
	}
	if f := v.Fence; f != nil {
		p.Fence = &debugv1alpha1.PressureFence{
			PIDs: f.PIDs, SlackBytes: int64(f.Slack), GrowthPerSecond: int64(f.Growth),
		}
	}
	return p
}

func (w *describer) reclaims() (list []debugv1alpha1.PressureReclaim) {
	add := func(q *policy.ReclaimRequest, dryRun bool) {
		list = append(list, debugv1alpha1.PressureReclaim{
			Signal: q.Signal.String(), Device: q.Device.String(), DryRun: dryRun, Containers: q.Containers, Images: q.Images,
			Amount: q.Amount, Target: q.Target,
		})
	}
	for i := range w.Decision.Reclaims {
		add(&w.Decision.Reclaims[i], false)
	}
	for i := range w.Decision.DryRun.Reclaims {
		add(&w.Decision.DryRun.Reclaims[i], true)
	}
	return list
}

// names returns the pods of the snapshot.
func (w *describer) names() map[types.UID]*snapshot.Facts {
	names := make(map[types.UID]*snapshot.Facts, len(w.Snapshot.Pods))
	for i := range w.Snapshot.Pods {
		names[w.Snapshot.Pods[i].UID] = w.Snapshot.Pods[i].Facts
	}
	return names
}

func named(uid types.UID, names map[types.UID]*snapshot.Facts) debugv1alpha1.PressurePod {
	if f := names[uid]; f != nil {
		return podOf(f)
	}
	return debugv1alpha1.PressurePod{UID: uid}
}

func (w *describer) inFlight() (list []debugv1alpha1.PressureInFlight) {
	if len(w.Snapshot.InFlight) == 0 {
		return nil
	}
	names := w.names()
	for i := range w.Snapshot.InFlight {
		f := &w.Snapshot.InFlight[i]
		p := debugv1alpha1.PressureInFlight{
			PressurePod: named(f.UID, names), Hard: f.Hard, State: f.State.String(), Started: w.wall(f.Started),
			Deadline: w.wall(f.Deadline), ExpectedMemoryBytes: int64(f.Expected.Memory),
		}
		if f.Signal != snapshot.NoSignal {
			p.Signal = f.Signal.String()
		}
		list = append(list, p)
	}
	return list
}

func (w *describer) requests() (list []debugv1alpha1.PressureRequest) {
	if len(w.Snapshot.Requests) == 0 {
		return nil
	}
	names := w.names()
	for i := range w.Snapshot.Requests {
		r := &w.Snapshot.Requests[i]
		list = append(list, debugv1alpha1.PressureRequest{
			PressurePod: named(r.UID, names), Plugins: r.Plugins, Scope: Cut(r.Scope), Forced: r.Forced,
			Killer: r.Killer.String(), Reason: Cut(r.Reason), Since: w.wall(r.Since),
		})
	}
	return list
}
