package plugins

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

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
