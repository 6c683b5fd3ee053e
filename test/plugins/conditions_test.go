package plugins

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

func conditionCases() []scenario {
	brief := func(o *plugin.Options) { o.Rules.ConditionTransitionPeriod = 2 * time.Second }
	return []scenario{{
		name: "a condition comes and ends", options: brief, plugins: one(func() *script { return reporting("Hot") }),
		play: func(r *rig) {
			r.conditions("Hot=True")
			r.scripts["p"].set(func(s *script) { s.demand.Condition = nil })
			r.conditions("Hot=False")
			r.called(2)
			if n := r.reported.Load(); n != 2 {
				r.t.Errorf("the conditions have changed %d times", n)
			}
		},
	}, {
		name: "a condition of a threshold, not met", plugins: one(func() *script {
			s := &script{}
			s.threshold.Condition = &arbiter.ConditionReport{Name: "Calm"}
			return s
		}),
		play: func(r *rig) { r.called(1); r.conditions() },
	}, {
		name: "a condition of a threshold", plugins: one(func() *script {
			s := &script{}
			s.threshold.Condition = &arbiter.ConditionReport{Name: "MemoryPressure", Met: true}
			return s
		}),
		play: func(r *rig) { r.conditions("MemoryPressure=True") },
	}, {
		name: "a condition of two plugins", options: brief, plugins: func() scripted {
			return scripted{"p": reporting("Hot"), "q": reporting("Hot")}
		},
		play: func(r *rig) {
			r.await("both plugins", func() string {
				if c := r.driver.Conditions(); len(c) != 1 || !slices.Equal(c[0].Plugins, []string{"p", "q"}) {
					return fmt.Sprintf("%+v", c)
				}
				return ""
			})
			r.scripts["q"].set(func(s *script) { s.demand.Condition = nil })
			r.called(4)
			r.conditions("Hot=True")
		},
	}, {
		name: "a condition of the CustomNodeResource", plugins: one(func() *script {
			s := reporting("Hot")
			s.demand.Condition.Resource = true
			return s
		}),
		play: func(r *rig) {
			r.await("the page", func() string {
				if c := r.driver.List().Conditions; len(c) != 1 || c[0].Target != "CustomNodeResource" || !c[0].True {
					return fmt.Sprintf("%+v", c)
				}
				return ""
			})
			r.conditions()
		},
	}, {
		name: "an invalid name", plugins: one(func() *script { return reporting("no/name") }),
		play: func(r *rig) {
			r.await("the refusal", func() string {
				if c := r.row("p").RefusedConditions; len(c) != 1 || c[0].Name != "no/name" {
					return fmt.Sprintf("%+v", c)
				}
				return ""
			})
			r.conditions()
		},
	}, {
		name: "more than 16 conditions of one plugin", options: func(o *plugin.Options) { o.Period = 20 * time.Millisecond },
		plugins: one(func() *script { return cycling("c", 20) }),
		play: func(r *rig) {
			r.await("a refusal", func() string {
				c, refused := r.driver.Conditions(), r.row("p").RefusedConditions
				if len(c) == 16 && len(refused) == 1 && refused[0].Reason == "more than 16 of one plugin" {
					return ""
				}
				return fmt.Sprint(len(c), refused)
			})
		},
	}, {
		name:    "more than 64 conditions of all plugins",
		options: func(o *plugin.Options) { o.Period = 20 * time.Millisecond },
		plugins: func() scripted {
			list := scripted{}
			for _, name := range []string{"p", "q", "r", "s", "u"} {
				list[name] = cycling(name, 16)
			}
			return list
		},
		play: func(r *rig) {
			r.called(40)
			r.await("64 conditions", func() string {
				if n := len(r.driver.Conditions()); n != 64 {
					return fmt.Sprint(n)
				}
				return ""
			})
		},
	}}
}

// cycling reports one of n conditions in each round, one after the other.
func cycling(prefix string, n int) *script {
	return &script{each: func(s *script) {
		s.demand.Condition = reporting(fmt.Sprint(prefix, s.rounds%n)).demand.Condition
	}}
}

func reloadCases() []scenario {
	both := func(list ...string) func(*plugin.Options) {
		return func(o *plugin.Options) { o.Remote, o.InTree = list, list }
	}
	return []scenario{{
		name: "reload: dry run ends", pods: pods("a"), options: func(o *plugin.Options) { o.DryRun = plugin.Selector{"*"} },
		plugins: one(func() *script {
			s := force("a")
			s.demand.Condition = reporting("Hot").demand.Condition
			return s
		}),
		play: func(r *rig) {
			r.evicted()
			r.conditions()
			if row := r.row("p"); !row.DryRun || row.Pods.Asked != 1 {
				r.t.Errorf("%+v", row)
			}
			r.reload(func(o *plugin.Options) { o.DryRun = nil })
			r.evicted("a/30")
			r.conditions("Hot=True")
		},
	}, {
		name: "reload: a plugin is disabled", options: oneAtATime, pods: pods("a", "x"), plugins: func() scripted {
			return scripted{"o": force("x"), "p": {}}
		}, evicted: []string{"x/30"},
		play: func(r *rig) {
			p := r.scripts["p"]
			p.set(func(s *script) { s.demand = force("a").demand })
			r.requested("p", 1)
			r.reload(both("*", "-p"))
			r.await("the request has ended", func() string {
				return differs(requestedUIDs(r), nil)
			})
			delete(r.scripts, "p")
			r.called(1)
			calls := p.called()
			r.free()
			r.evicted("x/30")
			if n := p.called(); n != calls {
				r.t.Errorf("a disabled plugin was called %d times", n-calls)
			}
			p.set(func(s *script) { s.demand = force("a").demand })
			r.reload(both("*"))
			r.evicted("a/30", "x/30")
		},
	}, {
		name: "reload: skipLabelKeys", pods: []*v1.Pod{pod("a", labelled("keep"))},
		options: func(o *plugin.Options) { o.Skip.LabelKeys = []string{"keep"} },
		plugins: one(func() *script { return force("a") }),
		play: func(r *rig) {
			r.evicted()
			r.reload(func(o *plugin.Options) { o.Skip.LabelKeys = nil })
			r.evicted("a/30")
		},
	}, {
		name: "reload: maxInFlight", pods: pods("a", "b"), options: oneAtATime,
		plugins: one(func() *script { return force("a", "b") }), evicted: []string{"a/30"},
		play: func(r *rig) {
			r.reload(func(o *plugin.Options) { o.Rules.MaxInFlight = 2 })
			r.evicted("a/30", "b/30")
		},
	}, {
		name: "reload: burst", pods: pods("a", "b"), options: func(o *plugin.Options) { o.Rules.Burst = 0 },
		plugins: one(func() *script { return force("a", "b") }),
		play: func(r *rig) {
			r.evicted()
			r.reload(func(o *plugin.Options) { o.Rules.Burst = -1 })
			r.evicted("a/30", "b/30")
		},
	}, {
		name: "reload: maxGracePeriod", pods: pods("a", "b"), plugins: one(func() *script { return grace("a", 500) }),
		evicted: []string{"a/500"},
		play: func(r *rig) {
			r.scripts["p"].set(func(s *script) { s.demand = arbiter.Demand{} })
			r.called(2) // a request for a that is cut would hasten it
			r.reload(func(o *plugin.Options) { o.Rules.MaxGracePeriodSeconds = 40 })
			r.scripts["p"].set(func(s *script) { s.demand = grace("b", 500).demand })
			r.evicted("a/500", "b/40")
		},
	}, {
		name: "reload: period", options: seldom, plugins: one(func() *script { return &script{} }),
		play: func(r *rig) {
			r.reload(func(o *plugin.Options) { o.Period = 50 * time.Millisecond })
			r.called(3)
		},
	}, {
		name: "reload: conditionTransitionPeriod", plugins: one(func() *script { return reporting("Hot") }),
		play: func(r *rig) {
			r.conditions("Hot=True")
			r.scripts["p"].set(func(s *script) { s.demand.Condition = nil })
			r.called(3)
			r.conditions("Hot=True")
			r.reload(func(o *plugin.Options) { o.Rules.ConditionTransitionPeriod = 0 })
			r.conditions("Hot=False")
		},
	}}
}
