package taints

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

const (
	hot  = "node.katalyst.kubewharf.io/Hot"
	cold = "node.katalyst.kubewharf.io/Cold"

	noSchedule = v1.TaintEffectNoSchedule
	prefer     = v1.TaintEffectPreferNoSchedule
	noExecute  = v1.TaintEffectNoExecute
)

func taint(key string, effect v1.TaintEffect) v1.Taint { return v1.Taint{Key: key, Effect: effect} }

func condition(name string, effects ...v1.TaintEffect) Condition {
	return Condition{Name: name, Effects: effects}
}

// text is a list of taints, each as kubectl writes it.
func text(list []v1.Taint) string {
	var words []string
	for i := range list {
		words = append(words, list[i].ToString())
	}
	return strings.ReplaceAll(strings.Join(words, " "), "node.katalyst.kubewharf.io/", "")
}

func recordText(list []Taint) string {
	var words []v1.Taint
	for _, t := range list {
		words = append(words, taint(t.Key, t.Effect))
	}
	return text(words)
}

func TestDecide(t *testing.T) {
	restored := Condition{Name: "Hot", Effects: []v1.TaintEffect{noSchedule, prefer}, Restored: true}
	other := v1.Taint{Key: "team", Value: "a", Effect: noSchedule}
	for name, c := range map[string]struct {
		in                      Input
		taints, record, forgets string
	}{
		"nothing": {Input{Known: true}, "", "", ""},
		"a condition adds its taints after those of others": {
			Input{Node: []v1.Taint{other}, Conditions: []Condition{condition("Hot", prefer, noSchedule)}, Known: true},
			"team=a:NoSchedule Hot:NoSchedule Hot:PreferNoSchedule", "Hot:NoSchedule Hot:PreferNoSchedule", "",
		},
		"conditions in the order of keys": {
			Input{Conditions: []Condition{condition("Hot", noExecute), condition("Cold", noSchedule)}, Known: true},
			"Cold:NoSchedule Hot:NoExecute", "Cold:NoSchedule Hot:NoExecute", "",
		},
		"a condition without effects": {Input{Conditions: []Condition{condition("Hot")}, Known: true}, "", "", ""},
		"nothing changes when the Node is as it should be": {
			Input{Node: []v1.Taint{taint(hot, noSchedule), other}, Conditions: []Condition{condition("Hot", noSchedule)},
				Known: true, Record: []Taint{{hot, noSchedule}}},
			"Hot:NoSchedule team=a:NoSchedule", "Hot:NoSchedule", "",
		},
		"the end of a condition removes its taints, which stay recorded until they are gone": {
			Input{Node: []v1.Taint{other, taint(hot, noSchedule)}, Known: true, Record: []Taint{{hot, noSchedule}}},
			"team=a:NoSchedule", "Hot:NoSchedule", "",
		},
		"a taint that is gone is forgotten": {
			Input{Node: []v1.Taint{other}, Known: true, Record: []Taint{{hot, noSchedule}}},
			"team=a:NoSchedule", "", "Hot:NoSchedule",
		},
		"an effect that is no longer allowed is removed": {
			Input{Node: []v1.Taint{taint(hot, noExecute), taint(hot, noSchedule)}, Known: true,
				Conditions: []Condition{condition("Hot", noSchedule)}, Record: []Taint{{hot, noExecute}, {hot, noSchedule}}},
			"Hot:NoSchedule", "Hot:NoExecute Hot:NoSchedule", "",
		},
		"a taint that a person has removed is written again": {
			Input{Conditions: []Condition{condition("Hot", noSchedule)}, Known: true, Record: []Taint{{hot, noSchedule}}},
			"Hot:NoSchedule", "Hot:NoSchedule", "",
		},
		"a name that the API server rejects": {
			Input{Conditions: []Condition{condition("-Hot", noSchedule), condition("a/b", noSchedule), condition("", prefer),
				condition("Cold", "NoEvict")}, Known: true}, "", "", "",
		},
		"E16: a condition of an earlier run keeps what is recorded": {
			Input{Node: []v1.Taint{taint(hot, noSchedule)}, Conditions: []Condition{restored}, Known: true,
				Record: []Taint{{hot, noSchedule}}},
			"Hot:NoSchedule", "Hot:NoSchedule", "",
		},
		"E16: as long as the conditions are unknown nothing is removed or forgotten": {
			Input{Node: []v1.Taint{taint(hot, noSchedule)}, Record: []Taint{{cold, noSchedule}, {hot, noSchedule}}},
			"Hot:NoSchedule", "Cold:NoSchedule Hot:NoSchedule", "",
		},
		"E16: and plugins that report already add taints": {
			Input{Node: []v1.Taint{taint(hot, noSchedule)}, Record: []Taint{{hot, noSchedule}},
				Conditions: []Condition{condition("Cold", prefer)}},
			"Hot:NoSchedule Cold:PreferNoSchedule", "Cold:PreferNoSchedule Hot:NoSchedule", "",
		},
		"E16: an effect that is no longer allowed is removed": {
			Input{Node: []v1.Taint{taint(hot, noExecute), taint(hot, noSchedule)}, Conditions: []Condition{restored},
				Known: true, Record: []Taint{{hot, noExecute}, {hot, noSchedule}}},
			"Hot:NoSchedule", "Hot:NoExecute Hot:NoSchedule", "",
		},
		"E17: not recorded, though a condition needs it": {
			Input{Node: []v1.Taint{taint(hot, noSchedule)}, Conditions: []Condition{condition("Hot", noSchedule)}, Known: true},
			"Hot:NoSchedule", "", "",
		},
		"E17: not recorded, and no condition needs it": {
			Input{Node: []v1.Taint{taint(hot, noSchedule)}, Known: true}, "Hot:NoSchedule", "", "",
		},
		"E17: the same key with another effect": {
			Input{Node: []v1.Taint{taint(hot, noExecute), taint(hot, noSchedule)}, Known: true,
				Record: []Taint{{hot, noSchedule}}},
			"Hot:NoExecute", "Hot:NoSchedule", "",
		},
		"E17: created again with a value": {
			Input{Node: []v1.Taint{{Key: hot, Value: "by-hand", Effect: noSchedule}}, Known: true,
				Record: []Taint{{hot, noSchedule}}},
			"Hot=by-hand:NoSchedule", "", "Hot:NoSchedule",
		},
		"E17: created again with a value while the condition is True": {
			Input{Node: []v1.Taint{{Key: hot, Value: "by-hand", Effect: noSchedule}}, Known: true,
				Conditions: []Condition{condition("Hot", noSchedule)}, Record: []Taint{{hot, noSchedule}}},
			"Hot=by-hand:NoSchedule", "", "Hot:NoSchedule",
		},
		"E17: created again with a value while the conditions are unknown": {
			Input{Node: []v1.Taint{{Key: hot, Value: "by-hand", Effect: noSchedule}}, Record: []Taint{{hot, noSchedule}}},
			"Hot=by-hand:NoSchedule", "", "Hot:NoSchedule",
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := Decide(c.in)
			if text(d.Taints) != c.taints || recordText(d.Record) != c.record || recordText(d.Forgotten) != c.forgets {
				t.Errorf("taints %q, record %q, forgotten %q, want %q, %q, %q", text(d.Taints), recordText(d.Record),
					recordText(d.Forgotten), c.taints, c.record, c.forgets)
			}
			if changes := text(d.Taints) != text(c.in.Node); d.Changed() != changes {
				t.Errorf("changed %v: added %v, removed %v", d.Changed(), d.Added, d.Removed)
			}
		})
	}
}

func TestNewCondition(t *testing.T) {
	allowed := []v1.TaintEffect{prefer, noSchedule}
	for _, c := range []struct {
		restored bool
		reported []string
		want     []v1.TaintEffect
	}{
		{false, []string{"NoExecute", "PreferNoSchedule", "NoSchedule", "Other"}, []v1.TaintEffect{noSchedule, prefer}},
		{false, nil, nil},
		{true, nil, []v1.TaintEffect{noSchedule, prefer}},
	} {
		want := Condition{Name: "Hot", Effects: c.want, Restored: c.restored}
		if got := NewCondition("Hot", c.restored, c.reported, allowed); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

var (
	drawKey    = rapid.SampledFrom([]string{hot, cold, "node.katalyst.kubewharf.io/Warm", "team", "node.kubernetes.io/x"})
	drawEffect = rapid.SampledFrom(Effects)
	drawValue  = rapid.SampledFrom([]string{"", "", "", "x"})
)

func drawInput(t *rapid.T) (in Input) {
	same := func(a v1.Taint) string { return a.Key + "/" + string(a.Effect) }
	in.Node = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) v1.Taint {
		return v1.Taint{Key: drawKey.Draw(t, "key"), Effect: drawEffect.Draw(t, "effect"), Value: drawValue.Draw(t, "value")}
	}), 0, 8, same).Draw(t, "node")
	in.Record = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Taint {
		return Taint{rapid.SampledFrom([]string{hot, cold, "node.katalyst.kubewharf.io/Warm"}).Draw(t, "key"),
			drawEffect.Draw(t, "effect")}
	}), 0, 8).Draw(t, "record")
	in.Conditions = rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Condition {
		return Condition{
			Name:     rapid.SampledFrom([]string{"Hot", "Cold", "Warm", "a/b", ""}).Draw(t, "name"),
			Effects:  rapid.SliceOfN(rapid.SampledFrom(append(slices.Clone(Effects), "Other")), 0, 4).Draw(t, "effects"),
			Restored: rapid.Bool().Draw(t, "restored"),
		}
	}), 0, 5, func(c Condition) string { return c.Name }).Draw(t, "conditions")
	in.Known = rapid.IntRange(0, 3).Draw(t, "known") > 0
	return in
}

// needs is the rule for one taint, written again: a condition that is True has this effect, and if it is of an earlier
// run, the taint is recorded.
func needs(in *Input, x Taint) bool {
	return slices.ContainsFunc(in.Conditions, func(c Condition) bool {
		return "node.katalyst.kubewharf.io/"+c.Name == x.Key && slices.Contains(c.Effects, x.Effect) &&
			(!c.Restored || slices.Contains(in.Record, x))
	})
}

func has(list []v1.Taint, x Taint) (v1.Taint, bool) {
	i := slices.IndexFunc(list, func(t v1.Taint) bool { return t.Key == x.Key && t.Effect == x.Effect })
	if i < 0 {
		return v1.Taint{}, false
	}
	return list[i], true
}

// fault describes what is wrong with a decision, "" for nothing. It goes through all keys and effects.
func fault(in *Input, d *Decision) string {
	for _, key := range []string{hot, cold, "node.katalyst.kubewharf.io/Warm", "team", "node.kubernetes.io/x"} {
		for _, effect := range Effects {
			x := Taint{key, effect}
			before, was := has(in.Node, x)
			after, is := has(d.Taints, x)
			recorded, records := slices.Contains(in.Record, x), slices.Contains(d.Record, x)
			ours := recorded && before.Value == ""
			switch {
			case was && !ours && (!is || before != after):
				return "a taint of somebody else was changed: " + x.Key
			case was && !ours && records:
				return "a taint of somebody else is recorded: " + x.Key
			case was && ours && is != (needs(in, x) || !in.Known):
				return "a taint of ours stays without a condition, or goes with one: " + x.Key
			case was && ours && !records:
				return "a taint of ours on the Node is forgotten: " + x.Key
			case !was && is != needs(in, x):
				return "a taint is added without a condition, or missing: " + x.Key
			case !was && is && !records:
				return "a taint is added and not recorded: " + x.Key
			case !was && !is && records != (recorded && !in.Known):
				return "the record of a taint that is not there: " + x.Key
			case recorded && !records != slices.Contains(d.Forgotten, x):
				return "forgotten is wrong: " + x.Key
			}
		}
	}
	return outOfOrder(in, d)
}

func outOfOrder(in *Input, d *Decision) string {
	for _, list := range [][]Taint{d.Added, d.Removed, d.Record, d.Forgotten} {
		if !slices.IsSortedFunc(list, Taint.compare) || len(slices.Compact(slices.Clone(list))) != len(list) {
			return "a list is not sorted"
		}
	}
	kept := slices.DeleteFunc(slices.Clone(in.Node), func(t v1.Taint) bool {
		return slices.Contains(d.Removed, Taint{t.Key, t.Effect})
	})
	for _, t := range d.Added {
		kept = append(kept, taint(t.Key, t.Effect))
	}
	if !slices.Equal(kept, d.Taints) {
		return "the Node does not have its taints in their order, without those removed, then those added"
	}
	return ""
}

// Every decision obeys the rules; it does not depend on the order of its input, does not modify it, and is final: when
// it has been carried out nothing is left to do.
func TestDecisionsObeyTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		copied := Input{Node: slices.Clone(in.Node), Record: slices.Clone(in.Record), Known: in.Known}
		for _, c := range in.Conditions {
			copied.Conditions = append(copied.Conditions, Condition{c.Name, slices.Clone(c.Effects), c.Restored})
		}
		d := Decide(in)
		if why := fault(&copied, &d); why != "" {
			t.Fatalf("%s\n%+v\n%+v", why, copied, d)
		}
		if len(in.Conditions) > 0 && !reflect.DeepEqual(in.Conditions, copied.Conditions) ||
			!slices.Equal(in.Node, copied.Node) || !slices.Equal(in.Record, copied.Record) {
			t.Fatal("the input was modified")
		}
		in.Conditions = rapid.Permutation(in.Conditions).Draw(t, "conditions in another order")
		in.Record = rapid.Permutation(in.Record).Draw(t, "record in another order")
		if again := Decide(in); !reflect.DeepEqual(again, d) {
			t.Fatalf("in another order: %+v, before %+v", again, d)
		}
		after := Decide(Input{Node: d.Taints, Conditions: in.Conditions, Known: in.Known, Record: d.Record})
		if after.Changed() || !slices.Equal(after.Taints, d.Taints) {
			t.Fatalf("carried out, it is decided again: %+v, before %+v", after, d)
		}
	})
}

// The rules above are violated by each of these decisions.
func TestRulesFindMutants(t *testing.T) {
	for name, mutant := range map[string]func(Input) Decision{
		"removes what is not recorded": func(in Input) Decision {
			for i := range in.Node {
				in.Record = append(in.Record, Taint{in.Node[i].Key, in.Node[i].Effect})
			}
			return Decide(in)
		},
		"looks at the key alone": func(in Input) Decision {
			for _, r := range slices.Clone(in.Record) {
				for _, effect := range Effects {
					in.Record = append(in.Record, Taint{r.Key, effect})
				}
			}
			return Decide(in)
		},
		"ignores the value": func(in Input) Decision {
			in.Node = slices.Clone(in.Node)
			for i := range in.Node {
				in.Node[i].Value = ""
			}
			return Decide(in)
		},
		"removes before the conditions are known": func(in Input) Decision { in.Known = true; return Decide(in) },
		"never removes": func(in Input) Decision { in.Known = false; return Decide(in) },
		"adds for conditions of an earlier run": func(in Input) Decision {
			in.Conditions = slices.Clone(in.Conditions)
			for i := range in.Conditions {
				in.Conditions[i].Restored = false
			}
			return Decide(in)
		},
		"drops conditions of an earlier run": func(in Input) Decision {
			in.Conditions = slices.DeleteFunc(slices.Clone(in.Conditions), func(c Condition) bool { return c.Restored })
			return Decide(in)
		},
		"forgets what it removes": func(in Input) Decision {
			d := Decide(in)
			d.Record = slices.DeleteFunc(d.Record, func(t Taint) bool { return slices.Contains(d.Removed, t) })
			return d
		},
		"does not record what it adds": func(in Input) Decision {
			d := Decide(in)
			d.Record = slices.DeleteFunc(d.Record, func(t Taint) bool { return slices.Contains(d.Added, t) })
			return d
		},
		"puts its taints first": func(in Input) Decision {
			d := Decide(in)
			slices.Reverse(d.Taints)
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := false
			rapid.Check(t, func(t *rapid.T) {
				in := drawInput(t)
				d := mutant(Input{
					Node: in.Node, Conditions: in.Conditions, Known: in.Known, Record: slices.Clone(in.Record),
				})
				found = found || fault(&in, &d) != ""
			})
			if !found {
				t.Error("no rule is violated")
			}
		})
	}
}
