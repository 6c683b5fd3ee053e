package taints

import (
	"cmp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

// Taint identifies a taint: the API server allows one taint of each key and effect on a Node.
type Taint struct {
	Key    string
	Effect v1.TaintEffect
}

func (t Taint) compare(o Taint) int {
	return cmp.Or(cmp.Compare(t.Key, o.Key), cmp.Compare(t.Effect, o.Effect))
}

// valid reports whether the API server accepts a taint with the prefix of plugin conditions. It would reject all taints
// of the Node for the sake of one that is invalid.
func (t Taint) valid() bool {
	name, prefixed := strings.CutPrefix(t.Key, arbiter.ConditionPrefix)
	return prefixed && !strings.Contains(name, "/") && len(validation.IsQualifiedName(t.Key)) == 0 &&
		slices.Contains(Effects, t.Effect)
}

// Effects are the effects that a taint can have.
var Effects = []v1.TaintEffect{v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule}

// Condition is a condition of eviction plugins that is True. Its taints have its type as their key, and no value.
type Condition struct {
	// Name has no prefix.
	Name string
	// Effects are those that the configuration allows, and unless the condition is restored only those of them that
	// plugins report.
	Effects []v1.TaintEffect
	// Restored: an earlier run of the agent has set the condition, and no plugin has reported on it yet, so that the
	// effects that plugins report are unknown. Of its taints those that are recorded are kept (E16), and no others.
	Restored bool
}

// NewCondition returns a condition that plugins report with effects, or that an earlier run of the agent has set.
// Allowed are the effects that the configuration allows.
func NewCondition(name string, restored bool, reported []string, allowed []v1.TaintEffect) Condition {
	c := Condition{Name: name, Restored: restored}
	for _, effect := range Effects {
		if slices.Contains(allowed, effect) && (restored || slices.Contains(reported, string(effect))) {
			c.Effects = append(c.Effects, effect)
		}
	}
	return c
}

// Input is what Decide decides on. It is not modified.
type Input struct {
	// Node has the taints of the Node.
	Node []v1.Taint
	// Conditions are those that are True.
	Conditions []Condition
	// Known is false as long as conditions of an earlier run of the agent may be missing in Conditions. All taints that
	// are recorded stay until then.
	Known bool
	// Record has the taints that the agent has added to this Node.
	Record []Taint
}

// Decision is the result of Decide.
type Decision struct {
	// Taints are those that the Node should have: those that it has in their order, without Removed, then Added.
	Taints []v1.Taint
	// Added and Removed are in the order of key and effect. The Node is as it should be if both are empty.
	Added, Removed []Taint
	// Record is to be stored before the Node is changed, in the order of key and effect. Those in Removed are still in it.
	Record []Taint
	// Forgotten were recorded and are no longer: the Node does not have them, or has one with a value, which somebody else
	// has added. In a Node that is out of date a taint may be missing that the agent has added. So the Node must be read
	// from the API server before anything is forgotten.
	Forgotten []Taint
}

// Changed reports whether the taints of the Node have to be changed.
func (d *Decision) Changed() bool { return len(d.Added)+len(d.Removed) > 0 }

// Removal returns the decision without the taints that it adds.
func (d *Decision) Removal() *Decision {
	return &Decision{
		Taints: d.Taints[:len(d.Taints)-len(d.Added)], Removed: d.Removed, Record: d.Record, Forgotten: d.Forgotten,
	}
}

// Decide decides which taints the Node should have. The order of conditions and their effects does not matter.
func Decide(in Input) Decision {
	ours, needed := sorted(in.Record), in.needed()
	d := Decision{}
	var taken []Taint
	for i := range in.Node {
		t := Taint{in.Node[i].Key, in.Node[i].Effect}
		_, recorded := slices.BinarySearchFunc(ours, t, Taint.compare)
		switch {
		case !recorded, in.Node[i].Value != "":
			taken = append(taken, t)
		case needed(t):
			d.Record = append(d.Record, t)
		default:
			d.Record, d.Removed = append(d.Record, t), append(d.Removed, t)
			continue
		}
		d.Taints = append(d.Taints, in.Node[i])
	}
	d.Added = in.missing(slices.Concat(taken, d.Record), ours)
	for _, t := range d.Added {
		d.Taints = append(d.Taints, v1.Taint{Key: t.Key, Effect: t.Effect})
	}
	if !in.Known {
		// What was recorded stays recorded, but for what is somebody else's now.
		d.Record = append(d.Record, slices.DeleteFunc(slices.Clone(ours), func(t Taint) bool {
			return slices.Contains(taken, t)
		})...)
	}
	d.Record, d.Removed = sorted(append(d.Record, d.Added...)), sorted(d.Removed)
	d.Forgotten = slices.DeleteFunc(ours, func(t Taint) bool { return slices.Contains(d.Record, t) })
	return d
}

// needed returns a function that reports whether a recorded taint stays.
func (in *Input) needed() func(Taint) bool {
	needed := map[Taint]bool{}
	for _, c := range in.Conditions {
		for _, effect := range c.Effects {
			needed[Taint{arbiter.ConditionPrefix + c.Name, effect}] = true
		}
	}
	return func(t Taint) bool { return !in.Known || needed[t] }
}

// missing returns the taints that conditions need and the Node does not have.
func (in *Input) missing(have, recorded []Taint) (list []Taint) {
	for _, c := range in.Conditions {
		for _, effect := range c.Effects {
			t := Taint{arbiter.ConditionPrefix + c.Name, effect}
			if t.valid() && !slices.Contains(have, t) && (!c.Restored || slices.Contains(recorded, t)) {
				list = append(list, t)
			}
		}
	}
	return sorted(list)
}

// sorted returns a copy in the order of key and effect, each once.
func sorted(list []Taint) []Taint {
	return slices.Compact(slices.SortedFunc(slices.Values(list), Taint.compare))
}
