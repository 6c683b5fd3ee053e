package plugin

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

// Restore takes over the conditions of the Node that an earlier run of the agent has published for plugins. Those that
// are True stay so until a plugin reports on them or the transition period is over (E16). It may be called at any time,
// before plugins are called or later; conditions that plugins have reported since are left as they are.
func (d *Driver) Restore(conditions []v1.NodeCondition) {
	now, wall := d.clock.now(), d.config.Clock.Now()
	var restored []arbiter.RestoredCondition
	for i := range conditions {
		c := &conditions[i]
		if name, ours := strings.CutPrefix(string(c.Type), arbiter.ConditionPrefix); ours {
			restored = append(restored, arbiter.RestoredCondition{
				Name: name, True: c.Status == v1.ConditionTrue, Since: now.Add(-wall.Sub(c.LastTransitionTime.Time)),
			})
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	rules := &d.options.Load().Rules
	d.live.state = d.live.state.Restore(restored, rules, now)
	list := d.live.state.ConditionsAt(rules, now)
	d.conditions.Store(&list)
	notify(d.changed)
}
