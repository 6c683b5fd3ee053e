package eviction

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
)

const (
	// blindAfter is for how long signals must be missing until users are told: single figures get lost without harm.
	blindAfter = 30 * time.Second
	eventBlind = "EvictionSignalUnknown"
)

// blindness tells users once when signals of a condition are missing, and once when they are back. It belongs to the loop.
type blindness struct {
	told [len(policy.ConditionTypes)]bool
}

func (b *blindness) report(ctx context.Context, r *reporter, d *policy.Decision) {
	logger := klog.FromContext(ctx)
	for i := range d.Conditions {
		c := &d.Conditions[i]
		blind := len(c.Blind) > 0 && d.At.Sub(c.BlindSince) >= blindAfter
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
}
