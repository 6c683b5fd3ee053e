package arbiter

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

// ConditionPrefix is the prefix of the types of node conditions that plugins report. Their names have no prefix.
const ConditionPrefix = "node.katalyst.kubewharf.io/"

const (
	maxConditionsOfPlugin = 16
	maxConditions         = 64
	// removeAfter is how long a condition stays on the Node after it has become False.
	removeAfter = time.Hour
)

// ConditionRecord is one condition as one plugin last reported it.
type ConditionRecord struct {
	// Plugin is empty for a condition of an earlier run of the agent, until a plugin reports on it.
	Plugin   string
	Resource bool
	Name     string
	Effects  []string
	// Met: the last answer of the plugin reports it met. LastMet is when it was last reported met.
	Met     bool
	LastMet time.Time
	// Ended is when the condition became False, zero while it is True. It stays so when the transition period changes.
	Ended time.Time
}

func (c *ConditionRecord) compare(o *ConditionRecord) int {
	return cmp.Or(cmp.Compare(c.Plugin, o.Plugin), trueFirst(c.Resource, o.Resource), cmp.Compare(c.Name, o.Name))
}

// Condition is what the Node, or Katalyst's CustomNodeResource, should say.
type Condition struct {
	Resource bool
	Name     string
	True     bool
	// Effects are those of all plugins that report it, in order.
	Effects []string
	// Plugins report it, in order. There are none for a condition of an earlier run of the agent.
	Plugins []string
	// LastMet is when it was last reported met.
	LastMet time.Time
	// Restored: the condition is True from an earlier run of the agent, and no plugin has reported on it since. The
	// effects of one of the Node are unknown.
	Restored bool
}

// RestoredCondition is a condition of the Node, or of the CustomNodeResource, that an earlier run of the agent has set.
type RestoredCondition struct {
	Resource bool
	Name     string
	True     bool
	// Effects are known for a condition of the CustomNodeResource, whose taints have been published with it.
	Effects []string
	// Since is the time of its last transition, on the clock of Settle.
	Since time.Time
}

// Restore returns the state with conditions from an earlier run of the agent. Those that are True stay so
// until a plugin reports on them or the transition period is over (E16); the others are removed an hour after their
// transition.
func (s State) Restore(conditions []RestoredCondition, rules *Rules, now time.Time) State {
	records := slices.Clone(s.Conditions)
	for _, c := range conditions {
		known := slices.ContainsFunc(records, func(r ConditionRecord) bool {
			return r.Resource == c.Resource && r.Name == c.Name
		})
		if known || invalidName(c.Name) != "" || len(records) >= maxConditions {
			continue
		}
		r := ConditionRecord{
			Resource: c.Resource, Name: c.Name, Effects: effects(c.Resource, c.Effects), LastMet: now,
		}
		if !c.True {
			r.Ended = now.Add(-max(0, now.Sub(c.Since)))
			r.LastMet = r.Ended.Add(-rules.ConditionTransitionPeriod)
		}
		records = append(records, r)
	}
	slices.SortFunc(records, func(a, b ConditionRecord) int { return a.compare(&b) })
	s.Conditions = records
	return s
}

// ConditionsAt returns the conditions of the state at a time.
func (s State) ConditionsAt(rules *Rules, now time.Time) []Condition {
	return (&settling{rules: rules, now: now}).conditions(s.Conditions)
}

// conditionsAfter notes which conditions are reported met. It drops those that ended long ago (E18), and new ones
// beyond the limits.
func (s *settling) conditionsAfter(records []ConditionRecord) []ConditionRecord {
	next := slices.Clone(records)
	for i := range next {
		if r := &next[i]; !s.active(r.Plugin) || s.answer(r.Plugin) != nil {
			r.Met = false
		}
	}
	for i := range s.answers.Plugins {
		answer := &s.answers.Plugins[i]
		if answer.Threshold != nil {
			next = s.condition(next, answer.Plugin, answer.Threshold.Condition)
		}
		if answer.Demand != nil {
			next = s.condition(next, answer.Plugin, answer.Demand.Condition)
		}
	}
	for i := range next {
		if r := &next[i]; r.Ended.IsZero() && !s.isTrue(r) {
			r.Ended = r.LastMet.Add(s.rules.ConditionTransitionPeriod)
		}
	}
	next = slices.DeleteFunc(next, func(r ConditionRecord) bool {
		return !r.Ended.IsZero() && s.now.Sub(r.Ended) >= removeAfter
	})
	slices.SortFunc(next, func(a, b ConditionRecord) int { return a.compare(&b) })
	return next
}

// isTrue reports whether the condition of the record is True: it is reported met, or was less than the transition
// period ago and has not been False since.
func (s *settling) isTrue(r *ConditionRecord) bool {
	return r.Met || (r.Ended.IsZero() && s.now.Sub(r.LastMet) < s.rules.ConditionTransitionPeriod)
}

func (s *settling) condition(records []ConditionRecord, plugin string, report *ConditionReport) []ConditionRecord {
	if report == nil {
		return records
	}
	records = s.reported(records, report)
	if !report.Met {
		return records
	}
	if why := invalidName(report.Name); why != "" {
		s.refuse(plugin, report.Name, why)
		return records
	}
	r := ConditionRecord{
		Plugin: plugin, Resource: report.Resource, Name: report.Name, Effects: effects(report.Resource, report.Effects),
		Met: true, LastMet: s.now,
	}
	if i := slices.IndexFunc(records, func(o ConditionRecord) bool { return r.compare(&o) == 0 }); i >= 0 {
		records[i] = r
		return records
	}
	records, why := s.makePlace(records, plugin)
	if why != "" {
		s.refuse(plugin, r.Name, why)
		return records
	}
	return append(records, r)
}

func (s *settling) refuse(plugin, name, why string) {
	s.outcome.Refused = append(s.outcome.Refused, RefusedCondition{plugin, bounded(name, maxScope), why})
}

// reported ends a condition of an earlier run of the agent on which a plugin reports: met, it is the plugin's from now
// on; else it is False.
func (s *settling) reported(records []ConditionRecord, report *ConditionReport) []ConditionRecord {
	restored := func(r ConditionRecord) bool {
		return r.Plugin == "" && r.Resource == report.Resource && r.Name == report.Name
	}
	i := slices.IndexFunc(records, restored)
	switch {
	case i < 0:
	case report.Met:
		return slices.Delete(records, i, i+1)
	case s.isTrue(&records[i]):
		records[i].Ended = s.now
	}
	return records
}

// makePlace makes a place for one more condition of a plugin, or returns why there is none. A condition that has ended
// gives its place to a new one. When all places are taken, the plugin that holds the most gives one up for a plugin
// that holds fewer, so that none can keep the others from reporting.
func (s *settling) makePlace(records []ConditionRecord, plugin string) ([]ConditionRecord, string) {
	count := map[string]int{}
	for i := range records {
		count[records[i].Plugin]++
	}
	var why string
	var loses func(r *ConditionRecord) bool
	switch {
	case count[plugin] >= maxConditionsOfPlugin:
		why = "more than 16 of one plugin"
		loses = func(r *ConditionRecord) bool { return r.Plugin == plugin && !s.isTrue(r) }
	case len(records) >= maxConditions:
		why = "more than 64 of all plugins"
		most := 0
		for _, n := range count {
			most = max(most, n)
		}
		loses = func(r *ConditionRecord) bool {
			return !s.isTrue(r) || (count[r.Plugin] == most && most > count[plugin]+1)
		}
	default:
		return records, ""
	}
	last := -1
	for i := range records {
		if r := &records[i]; loses(r) && (last < 0 || s.losesBefore(r, &records[last])) {
			last = i
		}
	}
	if last < 0 {
		return records, why
	}
	return slices.Delete(records, last, last+1), ""
}

// losesBefore is the order in which records lose their places: False ones first, those met longest ago first, the last
// of plugin and name first.
func (s *settling) losesBefore(a, b *ConditionRecord) bool {
	return cmp.Or(trueFirst(!s.isTrue(a), !s.isTrue(b)), a.LastMet.Compare(b.LastMet), -a.compare(b)) < 0
}

// RefusedCondition is a condition that a plugin has reported and that is not taken in, with the reason.
type RefusedCondition struct {
	Plugin, Name, Why string
}

// invalidName reports why a name cannot be that of a condition; empty when it can.
func invalidName(name string) string {
	if errs := validation.IsQualifiedName(name); len(errs) > 0 || strings.Contains(name, "/") || len(name) > 63 {
		return "must be at most 63 letters, digits, '-', '_' or '.', beginning and ending with a letter or digit"
	}
	return ""
}

// effects are the effects of taints that Kubernetes has, in order, each once; others are ignored. Those of a condition
// of the CustomNodeResource have a QoS level before them: reclaimed_cores/NoSchedule.
func effects(resource bool, reported []string) (list []string) {
	known := taintEffects
	if resource {
		known = resourceEffects
	}
	for _, effect := range known {
		if slices.Contains(reported, effect) {
			list = append(list, effect)
		}
	}
	return list
}

var (
	taintEffects    = []string{"NoExecute", "NoSchedule", "PreferNoSchedule"}
	resourceEffects = allResourceEffects()
)

func allResourceEffects() (list []string) {
	for _, level := range node.QoSLevels {
		for _, effect := range taintEffects {
			list = append(list, string(level)+"/"+effect)
		}
	}
	slices.Sort(list)
	return list
}

// conditions merges the records by condition: True as soon as any plugin reports it, False when none has for the
// transition period.
func (s *settling) conditions(records []ConditionRecord) (list []Condition) {
	for i := range records {
		r := &records[i]
		c := Condition{Resource: r.Resource, Name: r.Name, True: s.isTrue(r)}
		j := slices.IndexFunc(list, func(o Condition) bool { return o.Resource == c.Resource && o.Name == c.Name })
		if j < 0 {
			list = append(list, c)
			j = len(list) - 1
		}
		have := &list[j]
		have.True = have.True || c.True
		if r.LastMet.After(have.LastMet) {
			have.LastMet = r.LastMet
		}
		if r.Plugin != "" {
			have.Plugins = append(have.Plugins, r.Plugin)
		}
		have.Restored = have.Restored || (c.True && r.Plugin == "")
		if c.True {
			have.Effects = effects(r.Resource, append(slices.Clone(have.Effects), r.Effects...))
		}
	}
	slices.SortFunc(list, func(a, b Condition) int {
		return cmp.Or(trueFirst(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name))
	})
	return list
}
