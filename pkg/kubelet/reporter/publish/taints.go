package publish

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
)

// taintID identifies a taint of the object.
type taintID struct {
	Key      string `json:"key"`
	Effect   string `json:"effect"`
	QoSLevel string `json:"qosLevel"`
}

func (t taintID) compare(o taintID) int {
	return cmp.Or(cmp.Compare(t.Key, o.Key), cmp.Compare(t.Effect, o.Effect), cmp.Compare(t.QoSLevel, o.QoSLevel))
}

// String returns key:effect:qosLevel.
func (t taintID) String() string { return t.Key + ":" + t.Effect + ":" + t.QoSLevel }

// taint is an element of spec.taints, as JSON decodes it.
type taint struct {
	id    taintID
	value map[string]any
}

// taintsOf returns the elements of a list in JSON. What is no list of objects has none.
func taintsOf(list []byte) []taint {
	var values []map[string]any
	if json.Unmarshal(list, &values) != nil {
		return nil
	}
	var taints []taint
	for _, value := range values {
		if value != nil {
			taints = append(taints, taint{idOf(value), value})
		}
	}
	return taints
}

func idOf(value map[string]any) taintID {
	text := func(name string) string {
		s, _ := value[name].(string)
		return s
	}
	return taintID{text("key"), text("effect"), text("qosLevel")}
}

// taintDecision says what the taints of an object should be.
type taintDecision struct {
	// list is the whole list: the taints that the object has, in their order, without those that are removed, then those
	// that are added.
	list []any
	// withoutAdded is how many elements of the list are not added.
	withoutAdded int
	// changed: the list differs from that of the object. removes: it does so also without what is added.
	changed, removes bool
	// before are to be recorded before the object is changed, after are the agent's in the changed object. Both are
	// sorted.
	before, after []taintID
}

// decideTaints decides which taints an object should have. Of those that it has, only recorded ones are changed or
// removed, the first one of each identity: the other writers of the list do not know of the agent. A wanted taint that
// somebody else has added is left to them.
func decideTaints(live []any, want []taint, recorded []taintID) taintDecision {
	var d taintDecision
	wanted := map[taintID]map[string]any{}
	for _, t := range want {
		wanted[t.id] = t.value
	}
	seen := map[taintID]bool{}
	for _, element := range live {
		value, _ := element.(map[string]any)
		id := idOf(value)
		first := value != nil && !seen[id]
		seen[id] = true
		if !first || !slices.Contains(recorded, id) {
			d.list = append(d.list, element)
			continue
		}
		d.before = append(d.before, id)
		switch should := wanted[id]; {
		case should == nil:
			d.removes = true
		case reflect.DeepEqual(should, value):
			d.list, d.after = append(d.list, element), append(d.after, id)
		default:
			d.removes = true
			d.list, d.after = append(d.list, should), append(d.after, id)
		}
	}
	d.withoutAdded, d.changed = len(d.list), d.removes
	for _, t := range want {
		if !seen[t.id] {
			seen[t.id], d.changed = true, true
			d.list = append(d.list, t.value)
			d.before, d.after = append(d.before, t.id), append(d.after, t.id)
		}
	}
	slices.SortFunc(d.before, taintID.compare)
	slices.SortFunc(d.after, taintID.compare)
	return d
}
