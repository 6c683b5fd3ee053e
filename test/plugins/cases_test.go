package plugins

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

// scenario is one case. Plugins, options and pods are what it begins with; evicted are all requests to the pod workers
// after that, unless play goes on with the case. It has an API server if api is set, which changes what that answers.
type scenario struct {
	name    string
	api     func(*apiServer)
	options func(*plugin.Options)
	pods    []*v1.Pod
	plugins func() scripted
	evicted []string
	play    func(r *rig)
}

func one(s func() *script) func() scripted { return func() scripted { return scripted{"p": s()} } }

// TestPlugins plays all cases with plugins in the agent and with the same plugins behind sockets.
func TestPlugins(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"in the agent", "behind sockets"} {
		for _, list := range [][]scenario{requestCases(), thresholdCases(), podCases(), conditionCases(), reloadCases(),
			faultCases(), killerCases(), blockedCases(), noticeCases()} {
			for _, c := range list {
				t.Run(kind+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					r := newRig(t, c.options, c.pods...)
					r.behind, r.answers = kind == "behind sockets", c.api
					r.begin(c.plugins())
					r.begun()
					if c.play == nil || c.evicted != nil {
						r.evicted(c.evicted...)
					}
					if c.play != nil {
						c.play(r)
					}
				})
			}
		}
	}
}

// seldom makes rounds so rare that a case sees one only.
func seldom(o *plugin.Options) { o.Period = time.Hour }

// oneAtATime allows one pod in flight.
func oneAtATime(o *plugin.Options) { o.Rules.MaxInFlight = 1 }

// onlyRound waits until these pods are requested in the first round. It checks that no others are.
func (r *rig) onlyRound(want ...string) {
	r.t.Helper()
	r.await("requests to the pod workers", func() string { return differs(r.killed(), want) })
	if n := len(r.driver.Requests()); n > len(want) {
		r.t.Errorf("%d pods are requested, want %d", n, len(want))
	}
}

// requested waits until plugins request so many pods that wait.
func (r *rig) requested(name string, waiting int) {
	r.t.Helper()
	r.await("waiting pods of "+name, func() string {
		if n := r.row(name).Pods.Waiting; n != waiting {
			return fmt.Sprintf("%d, want %d", n, waiting)
		}
		return ""
	})
}

// free ends the pod x, which the plugin o requests and which takes the only place.
func (r *rig) free() {
	r.scripts["o"].set(func(s *script) { s.demand = arbiter.Demand{} })
	r.requested("o", 0)
	r.end("x")
}

func requestCases() []scenario {
	return []scenario{{
		name: "nothing to say", pods: pods("a"), plugins: one(func() *script { return &script{} }),
		play: func(r *rig) {
			r.evicted()
			if row := r.row("p"); row.LastAnswer == nil || row.LastAnswer.ThresholdType != "NOT_MET" || !row.Enabled {
				r.t.Errorf("%+v", row)
			}
		},
	}, {
		name: "forced", pods: pods("a", "b"), plugins: one(func() *script { return force("a") }), evicted: []string{"a/30"},
		play: func(r *rig) {
			r.message("a", "Eviction requested by plugin p", `scope "force"`, "p: too much")
			if row := r.row("p"); row.Pods.Asked != 1 || row.Pods.InFlight != 1 || row.Pods.Evicted != 1 {
				r.t.Errorf("%+v", row.Pods)
			}
			if list := r.driver.List().Requests; len(list) != 0 {
				r.t.Errorf("a pod in flight is requested again: %+v", list)
			}
		},
	}, {
		name: "three forced", pods: pods("a", "b", "c", "d"), plugins: one(func() *script { return force("c", "a", "b") }),
		evicted: []string{"a/30", "b/30", "c/30"},
	}, {
		name: "E9: burst, lower priorities first", pods: []*v1.Pod{pod("a", priority(9)), pod("b"), pod("c", priority(-1))},
		options: func(o *plugin.Options) { seldom(o); o.Rules.Burst = 1 }, plugins: one(func() *script {
			return force("a", "b", "c")
		}),
		play: func(r *rig) { r.onlyRound("c/30") },
	}, {
		name: "burst of two", pods: pods("a", "b", "c"),
		options: func(o *plugin.Options) { seldom(o); o.Rules.Burst = 2 },
		plugins: one(func() *script { return force("c", "b", "a") }),
		play:    func(r *rig) { r.onlyRound("a/30", "b/30") },
	}, {
		name: "burst without a bound", pods: pods("a", "b", "c", "d", "e"),
		options: func(o *plugin.Options) { seldom(o); o.Rules.Burst = -1 },
		plugins: one(func() *script { return force("a", "b", "c", "d", "e") }),
		play:    func(r *rig) { r.onlyRound("a/30", "b/30", "c/30", "d/30", "e/30") },
	}, {
		name: "maxInFlight", pods: pods("a", "b", "c"), options: func(o *plugin.Options) { o.Rules.MaxInFlight = 2 },
		plugins: one(func() *script { return force("a", "b", "c") }), evicted: []string{"a/30", "b/30"},
		play: func(r *rig) {
			r.requested("p", 1)
			r.end("a")
			r.evicted("a/30", "b/30", "c/30")
		},
	}, {
		name: "one soft candidate in a round", pods: pods("a", "b", "c"), options: seldom,
		plugins: one(func() *script { return soft("c", "b", "a") }),
		play:    func(r *rig) { r.onlyRound("a/30") },
	}, {
		name: "soft candidates round by round", pods: pods("a", "b", "c"), plugins: one(func() *script {
			return soft("a", "b", "c")
		}), evicted: []string{"a/30", "b/30", "c/30"},
	}, {
		name: "order of soft candidates: reclaimed, priority", options: oneAtATime,
		pods: []*v1.Pod{
			pod("a"), pod("b", priority(10), annotated(arbiter.QoSLevelKey, arbiter.ReclaimedCores)), pod("c", priority(-5)),
		},
		plugins: one(func() *script { return soft("a", "b", "c") }), evicted: []string{"b/30"},
		play: func(r *rig) {
			r.end("b")
			r.evicted("b/30", "c/30")
			r.end("c")
			r.evicted("b/30", "c/30", "a/30")
		},
	}, {
		name: "forced before soft", options: oneAtATime, pods: []*v1.Pod{pod("a"), pod("b", priority(10))},
		plugins: one(func() *script {
			s := soft("a", "b")
			s.demand.Pods[1].Force = true
			return s
		}), evicted: []string{"b/30"},
	}, {
		name: "soft notices", pods: []*v1.Pod{pod("a", annotated(arbiter.SoftNoticeKey, "true")), pod("b")},
		plugins: one(func() *script { return soft("a", "b") }), evicted: []string{"b/30"},
		play: func(r *rig) { r.noticed("a") },
	}, {
		name: "no deletion options: the pod's own grace period", pods: pods("a"),
		plugins: one(func() *script { return force("a") }), evicted: []string{"a/30"},
	}, {
		name: "E23: grace period of 0", pods: pods("a"),
		plugins: one(func() *script { return grace("a", 0) }), evicted: []string{"a/1"},
	}, {
		name: "grace period of -1", pods: pods("a"),
		plugins: one(func() *script { return grace("a", -1) }), evicted: []string{"a/30"},
	}, {
		name: "grace period of 5", pods: pods("a"),
		plugins: one(func() *script { return grace("a", 5) }), evicted: []string{"a/5"},
	}, {
		name: "the greatest grace period", pods: pods("a"),
		plugins: one(func() *script { return grace("a", math.MaxInt64) }), evicted: []string{"a/600"},
	}, {
		name: "a pod twice in one answer", pods: pods("a"), plugins: one(func() *script {
			s := grace("a", 20)
			s.demand.Pods = append(s.demand.Pods, grace("a", 10).demand.Pods...)
			return s
		}), evicted: []string{"a/10"},
	}, {
		name: "E15: two plugins name one pod", options: oneAtATime, pods: pods("a", "x"),
		plugins: func() scripted { return scripted{"o": force("x"), "p": {}, "q": {}} }, evicted: []string{"x/30"},
		play: func(r *rig) {
			r.scripts["q"].set(func(s *script) { s.demand = grace("a", 20).demand })
			r.scripts["p"].set(func(s *script) { s.demand = grace("a", 5).demand; s.demand.Pods[0].Force = false })
			r.requested("p", 1)
			r.requested("q", 1)
			r.free()
			r.evicted("x/30", "a/20")
			r.message("a", "plugin p, q", "p: too much; q: too much")
			if p, q := r.row("p").Pods.Evicted, r.row("q").Pods.Evicted; p != 1 || q != 1 {
				r.t.Errorf("%d and %d victims", p, q)
			}
		},
	}, {
		name: "a shorter grace period by force", pods: pods("a"), plugins: func() scripted {
			return scripted{"p": force("a"), "q": {}}
		}, evicted: []string{"a/30"},
		play: func(r *rig) {
			r.scripts["q"].set(func(s *script) { s.demand = grace("a", 5).demand })
			r.evicted("a/30", "a/5")
		},
	}, {
		name: "a request that ends before its turn", options: oneAtATime, pods: pods("a", "x"),
		plugins: func() scripted { return scripted{"o": force("x"), "p": {}} }, evicted: []string{"x/30"},
		play: func(r *rig) {
			r.scripts["p"].set(func(s *script) { s.demand = force("a").demand })
			r.requested("p", 1)
			r.scripts["p"].set(func(s *script) { s.demand = arbiter.Demand{} })
			r.requested("p", 0)
			r.free()
			r.evicted("x/30")
		},
	}, {
		name: "a long reason", pods: pods("a"), plugins: one(func() *script {
			s := force("a")
			s.demand.Pods[0].Reason = strings.Repeat("very ", 10_000)
			return s
		}), evicted: []string{"a/30"},
		play: func(r *rig) {
			r.message("a", "p: very very")
			if n := len(r.disruption("a").Message); n > 2048 {
				r.t.Errorf("the message has %d bytes", n)
			}
		},
	}}
}

func thresholdCases() []scenario {
	return []scenario{{
		name: "E10: one victim of a hard threshold at a time", pods: pods("a", "b", "c"),
		plugins: one(func() *script { return met(arbiter.Hard, "b", "a") }), evicted: []string{"b/30"},
		play: func(r *rig) {
			r.message("b", `scope "memory"`, "p: scope memory: 5 is below the threshold 10")
			q := r.scripts["p"].questions
			if len(q) != 1 || q[0].TopN != 1 || q[0].Scope != "memory" {
				r.t.Errorf("questions %+v", q)
			}
			r.end("b")
			r.evicted("b/30", "a/30")
		},
	}, {
		name: "a hard threshold with a grace period", pods: pods("a"), plugins: one(func() *script {
			s := met(arbiter.Hard, "a")
			s.threshold.Grace = time.Second
			return s
		}), evicted: []string{"a/30"},
		play: func(r *rig) {
			list := r.row("p").Thresholds
			if len(list) != 1 || list[0].MetSeconds < 1 || !list[0].Confirmed || list[0].Type != "HARD_MET" {
				r.t.Errorf("%+v", list)
			}
		},
	}, {
		name: "a hard threshold within its grace period", pods: pods("a"), plugins: one(func() *script {
			s := met(arbiter.Hard, "a")
			s.threshold.Grace = time.Hour
			return s
		}),
		play: func(r *rig) {
			r.evicted()
			if list := r.row("p").Thresholds; len(list) != 1 || list[0].Confirmed || list[0].GraceSeconds != 3600 {
				r.t.Errorf("%+v", list)
			}
		},
	}, {
		name: "an overdue victim: the next one", pods: pods("a", "b"), plugins: one(func() *script {
			s := met(arbiter.Hard, "a", "b")
			s.reply.GraceSeconds = new(int64(1))
			return s
		}),
		play: func(r *rig) {
			r.await("the second victim", func() string { return differs(r.killed(), []string{"a/1", "b/1"}) })
		},
	}, {
		name: "a victim that cannot be stopped: the next one", pods: pods("a", "b"), plugins: one(func() *script {
			return met(arbiter.Hard, "a", "b")
		}), evicted: []string{"a/30"},
		play: func(r *rig) {
			r.fail("a")
			r.await("the second victim", func() string {
				if list := r.killed(); !slices.Contains(list, "b/30") {
					return fmt.Sprint(list)
				}
				return ""
			})
		},
	}, {
		name: "a soft threshold with candidates", pods: pods("a", "b", "c"), plugins: one(func() *script {
			s := met(arbiter.Soft, "b", "a")
			s.threshold.Candidates = []types.UID{"a", "b", "elsewhere"}
			return s
		}), evicted: []string{"a/30", "b/30"},
		play: func(r *rig) {
			s := r.scripts["p"]
			if len(s.questions) == 0 || s.questions[0].TopN != 0 || !slices.Equal(s.asked[0], r.candidates("a", "b")) {
				r.t.Errorf("questions %+v with the pods %q", s.questions, s.asked)
			}
		},
	}, {
		name: "a soft threshold without candidates", pods: pods("a", "b"), options: seldom,
		plugins: one(func() *script { return met(arbiter.Soft, "b", "a") }),
		play: func(r *rig) {
			r.onlyRound("a/30")
			if s := r.scripts["p"]; len(s.asked) != 1 || !slices.Equal(s.asked[0], []string{"a", "b"}) {
				r.t.Errorf("asked for the pods %q", s.asked)
			}
		},
	}, {
		name: "a threshold that ends before its victim's turn", options: oneAtATime, pods: pods("a", "x"),
		plugins: func() scripted { return scripted{"o": force("x"), "p": {}} }, evicted: []string{"x/30"},
		play: func(r *rig) {
			m := met(arbiter.Soft, "a")
			r.scripts["p"].set(func(s *script) { s.threshold, s.reply = m.threshold, m.reply })
			r.requested("p", 1)
			r.scripts["p"].set(func(s *script) { s.threshold = arbiter.Threshold{} })
			r.requested("p", 0)
			r.free()
			r.evicted("x/30")
		},
	}, {
		name: "E13: a soft threshold turns hard", pods: pods("a", "b"), plugins: one(func() *script {
			return met(arbiter.Soft, "a")
		}), evicted: []string{"a/30"},
		play: func(r *rig) {
			before := time.Now()
			r.scripts["p"].set(func(s *script) { s.threshold.Kind, s.threshold.Grace = arbiter.Hard, time.Hour })
			r.await("the hard threshold", func() string {
				list := r.row("p").Thresholds
				if len(list) == 1 && list[0].Type == "HARD_MET" && !list[0].Confirmed &&
					list[0].MetSeconds <= time.Since(before).Seconds() {
					return ""
				}
				return fmt.Sprintf("%+v", list)
			})
			r.scripts["p"].set(func(s *script) { s.reply.Pods = []types.UID{"b"} })
			r.evicted("a/30")
		},
	}, {
		name: "a victim in flight is no candidate", pods: pods("a", "b"), plugins: func() scripted {
			return scripted{"p": force("a"), "q": {}}
		}, evicted: []string{"a/30"},
		play: func(r *rig) {
			m := met(arbiter.Hard, "a", "b")
			r.scripts["q"].set(func(s *script) { s.threshold, s.reply = m.threshold, m.reply })
			r.evicted("a/30", "b/30")
			if s := r.scripts["q"]; !slices.Equal(s.asked[0], []string{"b"}) {
				r.t.Errorf("asked for the pods %q", s.asked)
			}
		},
	}, {
		name: "values that are no numbers", pods: pods("a"), plugins: one(func() *script {
			s := met(arbiter.Hard, "a")
			s.threshold.Target, s.threshold.Observed = math.NaN(), math.Inf(1)
			return s
		}), evicted: []string{"a/30"},
		play: func(r *rig) {
			r.message("a", "unknown is below the threshold unknown")
			if _, err := json.Marshal(r.driver.List()); err != nil {
				r.t.Error(err)
			}
		},
	}}
}

// candidates are the pods of a question that names candidates: behind sockets those alone, in the agent all pods.
func (r *rig) candidates(uids ...string) []string {
	if r.behind {
		return uids
	}
	return []string{"a", "b", "c"}
}

func podCases() []scenario {
	excluded := func(name string, why arbiter.Exclusion, change func(*v1.Pod), options func(*plugin.Options)) scenario {
		return scenario{
			name: "E7: " + name, options: options, pods: []*v1.Pod{pod("a", change), pod("b")},
			plugins: one(func() *script { return force("a") }),
			play: func(r *rig) {
				r.dropped(why)
				r.evicted()
				if seen := r.scripts["p"].lastSeen(); !slices.Equal(seen, []string{"b"}) {
					r.t.Errorf("the plugin was shown the pods %q", seen)
				}
			},
		}
	}
	return []scenario{
		excluded("a critical pod", arbiter.Critical, priority(2_000_000_000), nil),
		excluded("a static pod", arbiter.Critical, annotated(kubetypes.ConfigSourceAnnotationKey, "file"), nil),
		excluded("a pod of system_cores", arbiter.SystemLevel, annotated(arbiter.QoSLevelKey, arbiter.SystemCores), nil),
		excluded("a pod with a skip annotation", arbiter.SkipAnnotation, annotated("example.com/keep", ""),
			func(o *plugin.Options) { o.Skip.AnnotationKeys = []string{"example.com/keep"} }),
		excluded("a pod with a skip label", arbiter.SkipLabel, labelled("keep"),
			func(o *plugin.Options) { o.Skip.LabelKeys = []string{"keep"} }),
		excluded("a pod with an owner of a skipped kind", arbiter.SkipOwner, owned("DaemonSet"),
			func(o *plugin.Options) { o.Skip.OwnerKinds = []string{"DaemonSet"} }),
		{
			name: "E7: a pod of another node", pods: pods("b"), plugins: one(func() *script { return force("a") }),
			play: func(r *rig) { r.dropped(arbiter.Unknown); r.evicted() },
		}, {
			name: "E7: a hard threshold skips pods that may not be named", pods: []*v1.Pod{
				pod("a", priority(2_000_000_000)), pod("b"),
			}, plugins: one(func() *script { return met(arbiter.Hard, "elsewhere", "a", "b") }), evicted: []string{"b/30"},
		}, {
			name: "a pod that is gone is named on", pods: pods("a"), plugins: one(func() *script { return force("a") }),
			evicted: []string{"a/30"},
			play:    func(r *rig) { r.end("a"); r.dropped(arbiter.Unknown); r.evicted("a/30") },
		}, {
			name: "an answer with more than 500 pods", pods: pods("a"), plugins: one(func() *script {
				s := &script{}
				for i := range 500 {
					s.demand.Pods = append(s.demand.Pods, arbiter.PodDemand{UID: types.UID(fmt.Sprint("no-", i))})
				}
				s.demand.Pods = append(s.demand.Pods, force("a").demand.Pods...)
				return s
			}),
			play: func(r *rig) {
				r.evicted()
				if n := r.row("p").Pods.Dropped[string(arbiter.Unknown)]; n < 500 {
					r.t.Errorf("%d unknown pods", n)
				}
			},
		},
	}
}

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

func requestedUIDs(r *rig) (list []string) {
	for _, q := range r.driver.Requests() {
		if q.UID != "x" {
			list = append(list, string(q.UID))
		}
	}
	return list
}

func faultCases() []scenario {
	brief := func(o *plugin.Options) { o.CallTimeout = 300 * time.Millisecond }
	return []scenario{{
		name: "E3: a plugin that hangs", pods: pods("a"), options: brief, plugins: func() scripted {
			return scripted{"p": {hangs: true}, "q": force("a")}
		},
		play: func(r *rig) {
			delete(r.scripts, "p")
			r.evicted("a/30")
			r.await("a failure", func() string {
				if h := r.row("p").Health; h.Failures == 0 || h.LastError == "" {
					return fmt.Sprintf("%+v", h)
				}
				return ""
			})
		},
	}, {
		name: "E13: requests of a plugin that fails end", pods: pods("a", "x"),
		options: func(o *plugin.Options) { oneAtATime(o); o.Period = time.Second }, // longer than any call
		plugins: func() scripted { return scripted{"o": force("x"), "p": {}} }, evicted: []string{"x/30"},
		play: func(r *rig) {
			r.scripts["p"].set(func(s *script) { s.demand = force("a").demand })
			r.requested("p", 1)
			r.scripts["p"].set(func(s *script) { s.err = fmt.Errorf("broken") })
			r.requested("p", 0)
			if n := r.row("p").Health.Failures; n < 3 {
				r.t.Errorf("the request has ended after %d failures", n)
			}
		},
	}}
}

// TestMetrics checks the metrics of one plugin that acts and of one in dry run. No other test uses their names, since
// metrics are those of the process.
func TestMetrics(t *testing.T) {
	t.Parallel()
	for _, behind := range []bool{false, true} {
		r := newRig(t, nil, pods("a", "b", "c")...)
		r.behind = behind
		acts, dry := fmt.Sprint("acts-", behind), fmt.Sprint("dry-", behind)
		r.reloadBefore(func(o *plugin.Options) { o.DryRun = plugin.Selector{dry} })
		s := force("a", "b", "elsewhere")
		s.demand.Condition = reporting("no/name").demand.Condition
		want := []struct {
			name, plugin string
			least, most  float64
		}{
			{"active", acts, 1, 1}, {"active", dry, 1, 1}, {"candidates", acts, 2, 2}, {"candidates", dry, 1, 1},
			{"victims_total", acts, 2, 2}, {"victims_total", dry, 0, 0}, {"dry_run_victims_total", acts, 0, 0},
			{"dry_run_victims_total", dry, 1, math.Inf(1)}, {"calls_total", acts, 4, math.Inf(1)},
			{"dropped_total", acts, 2, math.Inf(1)}, {"refused_conditions_total", acts, 2, math.Inf(1)},
		}
		before := map[string]float64{}
		for _, m := range want {
			before[m.name+m.plugin] = r.metric(m.name, m.plugin)
		}
		r.begin(scripted{acts: s, dry: force("c")})
		r.called(1)
		r.evicted("a/30", "b/30")
		for _, m := range want {
			if v := r.metric(m.name, m.plugin) - before[m.name+m.plugin]; v < m.least || v > m.most {
				t.Errorf("%s of %s has risen by %v, want %v to %v", m.name, m.plugin, v, m.least, m.most)
			}
		}
		r.reload(func(o *plugin.Options) { o.Remote, o.InTree = nil, nil })
		r.await("the plugins are not active", func() string {
			if v := r.metric("active", acts) + r.metric("active", dry) + r.metric("candidates", acts); v != 0 {
				return fmt.Sprint(v)
			}
			return ""
		})
	}
}
