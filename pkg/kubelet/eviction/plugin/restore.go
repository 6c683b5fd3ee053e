package plugin

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
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
	d.restore(restored)
}

// ResourceCondition is a condition of the CustomNodeResource that is True.
type ResourceCondition struct {
	// Name has no prefix.
	Name string
	// Effects are those of its taints, each with a QoS level: reclaimed_cores/NoSchedule.
	Effects []string
}

// RestoreResource takes over the conditions of the CustomNodeResource that an earlier run of the agent has published
// for plugins, as Restore does for those of the Node.
func (d *Driver) RestoreResource(conditions []ResourceCondition) {
	now := d.clock.now()
	restored := make([]arbiter.RestoredCondition, len(conditions))
	for i, c := range conditions {
		restored[i] = arbiter.RestoredCondition{Resource: true, Name: c.Name, True: true, Effects: c.Effects, Since: now}
	}
	d.restore(restored)
}

// ResourceConditions returns the conditions of the CustomNodeResource that are True, in the order of names.
func (d *Driver) ResourceConditions() (list []ResourceCondition) {
	if all := d.conditions.Load(); all != nil {
		for i := range *all {
			if c := &(*all)[i]; c.Resource && c.True {
				list = append(list, ResourceCondition{Name: c.Name, Effects: c.Effects})
			}
		}
	}
	return list
}

func (d *Driver) restore(restored []arbiter.RestoredCondition) {
	now := d.clock.now()
	d.mu.Lock()
	defer d.mu.Unlock()
	rules := &d.options.Load().Rules
	d.live.state = d.live.state.Restore(restored, rules, now)
	list := d.live.state.ConditionsAt(rules, now)
	d.conditions.Store(&list)
	plugincalls.Notify(d.changed)
}
