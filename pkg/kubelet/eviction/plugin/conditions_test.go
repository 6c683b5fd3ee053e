package plugin

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

func reporting(condition string) *scripted {
	return &scripted{threshold: func(context.Context, *View) (*arbiter.Threshold, error) {
		return &arbiter.Threshold{Condition: &arbiter.ConditionReport{Name: condition, Met: condition != ""}}, nil
	}}
}

func (r *rig) conditionsNow() string {
	var list []string
	for _, c := range r.Conditions() {
		list = append(list, c.Name+"="+text(c.True))
	}
	return strings.Join(list, " ")
}

// E16: conditions of an earlier run stay True while the plugin is not back, at most for the transition period;
// then, as E18 has it, they are False for an hour. All timers end then.
func TestE16RestoredConditionsStay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.InTree = nil
		r := newRig(t, o, nil)
		r.Restore([]v1.NodeCondition{
			{Type: arbiter.ConditionPrefix + "Hot", Status: v1.ConditionTrue},
			{Type: arbiter.ConditionPrefix + "Cold", Status: v1.ConditionFalse,
				LastTransitionTime: metav1.NewTime(time.Now().Add(-30 * time.Minute))},
			{Type: v1.NodeReady, Status: v1.ConditionTrue},
		})
		r.expect("before Run", r.conditionsNow(), "Cold=false Hot=true")
		r.start()
		defer r.stop()
		for _, step := range []struct {
			passes time.Duration
			want   string
		}{{4*time.Minute + 50*time.Second, "Cold=false Hot=true"}, {20 * time.Second, "Cold=false Hot=false"},
			{30 * time.Minute, "Hot=false"}, {30 * time.Minute, ""}} {
			pass(step.passes)
			r.expect(text("after another ", step.passes), r.conditionsNow(), step.want)
		}
		r.set(func() { r.expect("reports of changes", text(r.reported), "3") })
	})
}

// E16: a plugin that is back decides about its condition.
func TestE16PluginIsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, options(), map[string]Plugin{"p": reporting("Hot"), "q": &scripted{
			threshold: func(context.Context, *View) (*arbiter.Threshold, error) {
				return &arbiter.Threshold{Condition: &arbiter.ConditionReport{Name: "Cold"}}, nil
			},
		}})
		r.Restore([]v1.NodeCondition{
			{Type: arbiter.ConditionPrefix + "Hot", Status: v1.ConditionTrue},
			{Type: arbiter.ConditionPrefix + "Cold", Status: v1.ConditionTrue},
		})
		r.start()
		defer r.stop()
		r.expect("conditions", r.conditionsNow(), "Cold=false Hot=true")
		pass(time.Hour)
		r.expect("an hour later", r.conditionsNow(), "Hot=true")
	})
}

// E18: a condition is True at once, False after the transition period, gone an hour later. A plugin that is disabled
// reports nothing any more.
func TestE18ConditionsEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, options(), map[string]Plugin{"p": reporting("Hot")})
		r.start()
		defer r.stop()
		r.expect("at once", r.conditionsNow(), "Hot=true")
		o := options()
		o.InTree = nil
		r.SetOptions(o)
		pass(4 * time.Minute)
		r.expect("within the transition period", r.conditionsNow(), "Hot=true")
		pass(2 * time.Minute)
		r.expect("after it", r.conditionsNow(), "Hot=false")
		pass(time.Hour)
		r.expect("an hour later", r.conditionsNow(), "")
	})
}
