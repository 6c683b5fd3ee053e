package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// blindAfter is for how long signals must be missing until users are told: single figures get lost without harm.
	blindAfter     = 30 * time.Second
	eventBlind     = "EvictionSignalUnknown"
	eventSilent    = "EvictionRuntimeSilent"
	eventUnwatched = "EvictionMemoryUnwatched"
)

// blindness tells users once when signals of a condition are missing, and once when they are back. It belongs to the loop.
type blindness struct {
	told [len(policy.ConditionTypes)]bool
	// shown is what the metric says.
	shown [snapshot.NumSignals]bool
	// silentSince is when the container runtime was first missed; silentTold that it was said.
	silentSince time.Time
	silentTold  bool
	// unwatched is what the metric of the memory counters shows; unwatchedTold that the failure was reported.
	unwatched, unwatchedTold bool
}

func (b *blindness) report(ctx context.Context, r *reporter, d *policy.Decision) {
	logger := klog.FromContext(ctx)
	for i := range d.Conditions {
		c := &d.Conditions[i]
		blind := isBlind(c, d.At)
		switch {
		case blind && !b.told[i]:
			logger.Error(nil, "Eviction manager: signals cannot be seen", "condition", c.Type, "status", c.True, "signals", c.Blind, "since", c.BlindSince)
			r.recorder.Eventf(r.node, v1.EventTypeWarning, eventBlind, "Cannot tell %v since %s; %s stays %v", c.Blind, c.BlindSince.UTC().Format(time.RFC3339), c.Type, c.True)
			b.told[i] = true
		case len(c.Blind) == 0 && b.told[i]:
			logger.Info("Eviction manager: all signals can be seen again", "condition", c.Type)
			b.told[i] = false
		}
	}
	b.show(d)
}

func isBlind(c *policy.Condition, now time.Time) bool {
	return len(c.Blind) > 0 && now.Sub(c.BlindSince) >= blindAfter
}

// show keeps the metric up to date; in most rounds nothing has changed.
func (b *blindness) show(d *policy.Decision) {
	var blind [snapshot.NumSignals]bool
	for i := range d.Conditions {
		for _, sig := range d.Conditions[i].Blind {
			blind[sig] = true
		}
	}
	if blind == b.shown {
		return
	}
	for sig, is := range blind {
		if is != b.shown[sig] {
			value := 0.0
			if is {
				value = 1
			}
			signalBlind.WithLabelValues(snapshot.Signal(sig).String()).Set(value)
		}
	}
	b.shown = blind
}

// hear tells users once when the container runtime does not say what pods use, and once when it does again.
func (b *blindness) hear(ctx context.Context, r *reporter, s *snapshot.Snapshot) {
	switch {
	case s.RuntimeSilent && b.silentSince.IsZero():
		b.silentSince = s.Taken
		runtimeSilent.Set(1)
	case s.RuntimeSilent && !b.silentTold && s.Taken.Sub(b.silentSince) >= blindAfter:
		b.silentTold = true
		klog.FromContext(ctx).Error(nil, "Eviction manager: the container runtime does not tell what pods use", "since", b.silentSince)
		r.recorder.Eventf(r.node, v1.EventTypeWarning, eventSilent, "The container runtime does not tell what pods use since %s; nobody is evicted for file systems",
			b.silentSince.UTC().Format(time.RFC3339))
	case !s.RuntimeSilent && !b.silentSince.IsZero():
		if b.silentTold {
			klog.FromContext(ctx).Info("Eviction manager: the container runtime tells again what pods use")
		}
		b.silentSince, b.silentTold = time.Time{}, false
		runtimeSilent.Set(0)
	}
}

// watch tells users once when memory cannot be watched between looks since its counters cannot be read, and once when
// it can again.
func (b *blindness) watch(ctx context.Context, r *reporter, g *gate, now time.Time) {
	if g == nil {
		return
	}
	failed := g.failure != nil
	if failed != b.unwatched {
		b.unwatched = failed
		countersFailed.Set(map[bool]float64{true: 1}[failed])
	}
	switch {
	case failed && !b.unwatchedTold && now.Sub(g.failedSince) >= blindAfter:
		b.unwatchedTold = true
		klog.FromContext(ctx).Error(g.failure, "Eviction manager: memory counters cannot be read",
			"since", g.failedSince)
		r.recorder.Eventf(r.node, v1.EventTypeWarning, eventUnwatched,
			"Memory counters cannot be read since %s, so memory is looked at only every %v: %v",
			g.failedSince.UTC().Format(time.RFC3339), r.every, g.failure)
	case !failed && b.unwatchedTold:
		b.unwatchedTold = false
		klog.FromContext(ctx).Info("Eviction manager: memory counters can be read again")
	}
}

// Blind lists the signals of a pressure condition that have not been seen for a while, and since when the first of them has not;
// none while all can be seen. The condition holds what it was: what is unknown is never a reason to change it.
func (m *Manager) Blind(t v1.NodeConditionType) (signals []string, since time.Time) {
	now := m.config.Clock.Now()
	for _, c := range *m.conditions.Load() {
		if c.Type != t || !isBlind(&c, now) {
			continue
		}
		for _, sig := range c.Blind {
			signals = append(signals, sig.String())
		}
		return signals, c.BlindSince
	}
	return nil, time.Time{}
}
