package plugin

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

var _ eviction.Sink = (*Driver)(nil)

// Name implements eviction.Sink.
func (d *Driver) Name() string { return "eviction-plugins" }

// NeedsRound keeps the round for plugins in the agent. The goroutine that decides calls it.
func (d *Driver) NeedsRound(r *eviction.Round) bool {
	if !d.active.Load() {
		return false
	}
	d.last.Store(r)
	return memoryCrossed(r)
}

// memoryCrossed reports whether memory has crossed a threshold: the condition has become True, or a hard threshold is
// met that was not.
func memoryCrossed(r *eviction.Round) bool {
	now := r.Decision.Condition(v1.NodeMemoryPressure)
	var before policy.Condition
	if i := slices.IndexFunc(r.Before, func(c policy.Condition) bool { return c.Type == now.Type }); i >= 0 {
		before = r.Before[i]
	}
	return (now.True && !before.True) || (now.HardMet && !before.HardMet)
}

// Round implements eviction.Sink: the plugins are asked at once when memory crosses a threshold.
func (d *Driver) Round(context.Context, *eviction.Round) { plugincalls.Notify(d.crossed) }

// Result counts the evictions that plugins have caused: those that began the termination of the pod. Their requests
// may have ended since the decision.
func (d *Driver) Result(_ context.Context, r *eviction.Result) {
	if r.Kind != eviction.KillAccepted || r.Answer != podkill.Begun || r.Victim == nil ||
		r.Victim.Cause.Kind != policy.PluginRequest {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, plugin := range strings.Split(r.Victim.Cause.Plugins, ",") {
		victims.WithLabelValues(labels.Of(plugin)).Inc()
		d.evicted[labels.Of(plugin)]++
	}
}
