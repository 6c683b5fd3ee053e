package plugin

import (
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// settle has the arbiter settle the answers that have come in, and carries out what follows.
func (l *loop) settle(now time.Time) {
	l.settleAt = time.Time{}
	pods := l.pods()
	live, published := l.settleBook(&l.live, false, pods, now)
	dry, _ := l.settleBook(&l.dry, true, pods, now)
	l.goQuestions(append(live.Questions, dry.Questions...))
	l.publishRequests(live.Requests)
	l.giveNotices(live.Notices)
	l.reportConditions(published, live.Conditions)
	l.askAgain()
	if l.idle() {
		l.nextRound = time.Time{}
	}
}

// goQuestions asks questions. Those of one kind share what plugins are given, which is encoded once.
func (l *loop) goQuestions(questions []arbiter.Question) {
	views := map[arbiter.Kind]*View{}
	for _, q := range questions {
		if views[q.Kind] == nil {
			views[q.Kind] = l.questionView(&q)
		}
		l.goQuestion(q, views[q.Kind])
	}
}

// askAgain asks the plugins that had a call under way when memory crossed a threshold.
func (l *loop) askAgain() {
	var view *View
	for _, c := range l.callers {
		if c.busy || !c.again {
			continue
		}
		if view == nil {
			view = l.view(l.taken)
		}
		l.ask(c, view)
	}
}

// settleBook settles the answers of one book. It publishes the conditions of the live one while it holds the lock, so
// that none that Restore takes over meanwhile is withdrawn, and returns those that were published before.
func (l *loop) settleBook(b *book, dryRun bool, pods []arbiter.Pod, now time.Time) (
	outcome arbiter.Outcome, published []arbiter.Condition,
) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.pending.Active = l.names(dryRun)
	before := b.state
	outcome, state := arbiter.Settle(b.pending, pods, &l.options.Load().Rules, before, now)
	for i := range b.pending.Plugins {
		delete(l.refused, b.pending.Plugins[i].Plugin)
	}
	b.state, b.pending = state, arbiter.Answers{}
	for _, dropped := range outcome.Dropped {
		l.countDroppedLocked(dropped.Plugin, string(dropped.Why), 1)
	}
	for _, r := range outcome.Refused {
		refusedConditions.WithLabelValues(labels.Of(r.Plugin)).Inc()
		l.refused[r.Plugin] = append(l.refused[r.Plugin], debugv1alpha1.RefusedCondition{Name: r.Name, Reason: r.Why})
	}
	l.logThresholds(before.Clocks, state.Clocks)
	countCandidates(l.names(dryRun), state.Asks)
	if dryRun {
		l.countDryRun(&before, outcome.Requests)
		return outcome, nil
	}
	if last := l.conditions.Swap(new(outcome.Conditions)); last != nil {
		published = *last
	}
	return outcome, published
}

// countDryRun counts the pods that would be evicted now, each once while it is asked for.
func (l *loop) countDryRun(before *arbiter.State, requests []snapshot.Request) {
	for i := range requests {
		r := &requests[i]
		_, requested := slices.BinarySearch(before.Offered, r.UID)
		if requested || slices.ContainsFunc(before.Waits, func(w arbiter.Wait) bool { return w.UID == r.UID }) {
			continue
		}
		for _, plugin := range r.Plugins {
			dryRunVictims.WithLabelValues(labels.Of(plugin)).Inc()
		}
		klog.FromContext(l.ctx).Info("Eviction plugins: a pod would be evicted but for dry run", "podUID", r.UID,
			"plugins", r.Plugins, "scope", r.Scope, "reason", r.Reason)
	}
}

// logThresholds logs the thresholds that have become confirmed, and those that are no longer.
func (l *loop) logThresholds(before, now []arbiter.Clock) {
	l.logMissing("Eviction plugins: threshold is met for its grace period", now, before)
	l.logMissing("Eviction plugins: threshold is no longer met", before, now)
}

// logMissing logs the confirmed thresholds that are in one list and not in the other.
func (l *loop) logMissing(message string, list, other []arbiter.Clock) {
	for i := range list {
		c := &list[i]
		same := func(o arbiter.Clock) bool {
			return o.Confirmed && o.Plugin == c.Plugin && o.Scope == c.Scope && o.Kind == c.Kind
		}
		if c.Confirmed && !slices.ContainsFunc(other, same) {
			klog.FromContext(l.ctx).Info(message, "plugin", c.Plugin, "scope", c.Scope, "hard", c.Kind == arbiter.Hard,
				"observed", c.Last.Observed, "threshold", c.Last.Target, "gracePeriod", c.Last.Grace)
		}
	}
}

// publishRequests replaces the requests. It wakes the eviction manager if there is more to do than before: a new pod,
// or one that is to be stopped sooner.
func (l *loop) publishRequests(requests []snapshot.Request) {
	before := l.Requests()
	if len(requests) == 0 && len(before) == 0 {
		return
	}
	l.requests.Store(&requests)
	more := slices.ContainsFunc(requests, func(r snapshot.Request) bool {
		i := slices.IndexFunc(before, func(o snapshot.Request) bool { return o.UID == r.UID })
		return i < 0 || sooner(&r, &before[i])
	})
	if more {
		l.config.Wake()
	}
}

// sooner reports whether a request asks for more than the one before: for force, for another killer, or for less
// grace.
func sooner(r, before *snapshot.Request) bool {
	if r.Killer != before.Killer {
		return true
	}
	if r.Forced != before.Forced {
		return r.Forced
	}
	return r.GraceSeconds != nil && (before.GraceSeconds == nil || *r.GraceSeconds < *before.GraceSeconds)
}

// reportConditions reports that the conditions have changed, if they have.
func (l *loop) reportConditions(before, conditions []arbiter.Condition) {
	if slices.EqualFunc(before, conditions, sameCondition) {
		return
	}
	for i := range conditions {
		c := &conditions[i]
		same := func(o arbiter.Condition) bool { return sameCondition(o, *c) }
		if !slices.ContainsFunc(before, same) {
			klog.FromContext(l.ctx).Info("Eviction plugins: condition has changed", "condition", c.Name, "true", c.True,
				"effects", c.Effects, "customNodeResource", c.Resource, "plugins", strings.Join(c.Plugins, ","))
		}
	}
	l.config.ConditionsChanged()
}

func sameCondition(a, b arbiter.Condition) bool {
	return a.Name == b.Name && a.Resource == b.Resource && a.True == b.True && a.Restored == b.Restored &&
		slices.Equal(a.Effects, b.Effects)
}
