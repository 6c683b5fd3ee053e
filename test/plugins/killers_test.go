package plugins

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// accepting is an API server that accepts everything.
func accepting(*apiServer) {}

// refusing is an API server that refuses the eviction of these pods.
func refusing(retryAfter int, pods ...string) func(*apiServer) {
	return func(s *apiServer) {
		for _, pod := range pods {
			s.refused[pod] = withBudget(retryAfter)
		}
	}
}

// allowing lets the API server accept everything from now on.
func allowing(s *apiServer) { clear(s.refused); s.away = false }

// killers configures what evicts pods by forced requests and by others.
func killers(forced, soft snapshot.Killer) func(*plugin.Options) {
	return func(o *plugin.Options) { o.Rules.Killers.Forced, o.Rules.Killers.Soft = forced, soft }
}

// steady makes rounds long enough for answers on a machine that is busy: a request ends after three rounds without one.
func steady(o *plugin.Options) { o.Period = time.Second }

// byAPI waits until exactly these requests to evict pods have been sent to the API server since the start, and checks
// that they are all for two more rounds.
func (r *rig) byAPI(want ...string) {
	r.t.Helper()
	slices.Sort(want)
	r.await("requests to the API server", func() string { return differs(r.api.of(""), want) })
	r.called(2)
	if diff := differs(r.api.of(""), want); diff != "" {
		r.t.Error(diff)
	}
}

// inFlight waits until these pods are being evicted.
func (r *rig) inFlight(want ...string) {
	r.t.Helper()
	r.await("pods in flight", func() string {
		var got []string
		for _, pod := range r.manager.InFlight() {
			got = append(got, string(pod.UID))
		}
		return differs(got, want)
	})
}

// waits waits until the API server has refused the eviction of exactly these pods, which are not in flight.
func (r *rig) waits(want ...string) {
	r.t.Helper()
	r.await("blocked pods", func() string {
		var got []string
		for _, uid := range r.killer.Blocked() {
			got = append(got, string(uid))
		}
		return differs(got, want)
	})
	r.inFlight()
}

// event waits for exactly one event of a reason, with these parts.
func (r *rig) event(reason string, parts ...string) {
	r.t.Helper()
	r.await("event "+reason, func() string {
		list := r.eventsOf(reason)
		missing := func(part string) bool { return !strings.Contains(list[0], part) }
		if len(list) != 1 || slices.ContainsFunc(parts, missing) {
			return fmt.Sprintf("%q", list)
		}
		return ""
	})
}

// oneVictim waits until the page says that the plugin p has one victim, which is in flight.
func (r *rig) oneVictim() {
	r.t.Helper()
	r.await("one victim", func() string {
		if p := r.row("p").Pods; p.InFlight != 1 || p.Evicted != 1 {
			return fmt.Sprintf("%+v", p)
		}
		return ""
	})
}

// demand has the plugin p request what another script does from now on.
func (r *rig) demand(s *script) {
	r.scripts["p"].set(func(p *script) { p.demand = s.demand })
}

func killerCases() []scenario {
	return []scenario{{
		name: "a soft request by the eviction API", api: accepting, pods: pods("a"),
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.byAPI("EvictionAPI a/30!")
			r.inFlight("a")
			r.evicted()
			r.event("Evicted", "requested by plugin p", "p: too much")
			r.oneVictim()
			r.end("a")
			r.inFlight()
			r.byAPI("EvictionAPI a/30!")
		},
	}, {
		name: "grace periods by the eviction API", api: accepting, pods: pods("a", "b", "c", "d"),
		plugins: one(func() *script {
			s := soft("a", "b", "c", "d")
			for i, seconds := range []int64{0, 5, 10_000} {
				s.demand.Pods[i].GraceSeconds = &seconds
			}
			return s
		}),
		play: func(r *rig) {
			r.byAPI("EvictionAPI a/1!", "EvictionAPI b/5!", "EvictionAPI c/600!", "EvictionAPI d/30!")
			r.evicted()
		},
	}, {
		name: "maxInFlight counts what the API server has accepted", api: accepting, pods: pods("a", "b"),
		options: oneAtATime, plugins: one(func() *script { return soft("a", "b") }),
		play: func(r *rig) {
			r.byAPI("EvictionAPI a/30!")
			r.end("a")
			r.byAPI("EvictionAPI a/30!", "EvictionAPI b/30!")
		},
	}, {
		name: "by deletion, which no disruption budget limits", api: accepting, pods: pods("a", "b"),
		options: killers(snapshot.DeleteAPI, snapshot.DeleteAPI),
		plugins: one(func() *script {
			s := soft("a", "b")
			s.demand.Pods[1].Force, s.demand.Pods[1].GraceSeconds = true, new(int64(7))
			return s
		}),
		play: func(r *rig) {
			r.byAPI("DeleteAPI a/30!", "DeleteAPI b/7!")
			r.inFlight("a", "b")
			r.evicted()
		},
	}, {
		name: "killerByQoSLevel counts more than the kind", api: accepting, pods: []*v1.Pod{
			pod("a", annotated(arbiter.QoSLevelKey, "dedicated_cores")), pod("b"),
			pod("c", annotated(arbiter.QoSLevelKey, arbiter.ReclaimedCores)), pod("d"),
		},
		options: func(o *plugin.Options) {
			o.Rules.Killers.ByQoSLevel = map[string]snapshot.Killer{
				"dedicated_cores": snapshot.EvictionAPI, arbiter.ReclaimedCores: snapshot.PodWorker, "": snapshot.DeleteAPI,
			}
		},
		plugins: one(func() *script {
			s := force("a", "b", "c", "d")
			s.demand.Pods[2].Force, s.demand.Pods[3].Force = false, false
			return s
		}), evicted: []string{"b/30", "c/30"},
		play: func(r *rig) { r.byAPI("EvictionAPI a/30!", "EvictionAPI d/30!"); r.message("c", "p: too much") },
	}, {
		name: "standalone: soft requests by the pod workers", pods: pods("a", "b"),
		options: func(o *plugin.Options) {
			o.Rules.Killers = plugin.OptionsFrom(pressure.Default(), true).Rules.Killers
		},
		plugins: one(func() *script { return soft("a", "b") }), evicted: []string{"a/30", "b/30"},
		play: func(r *rig) { r.message("a", "p: too much") },
	}, {
		name: "a shorter grace period by force, by the pod workers", api: accepting, pods: pods("a"),
		options: killers(snapshot.EvictionAPI, snapshot.EvictionAPI),
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.inFlight("a")
			r.demand(grace("a", 5))
			r.evicted("a/5")
			r.byAPI("EvictionAPI a/30!")
		},
	}, {
		name: "the API server is away", api: func(s *apiServer) { s.away = true }, pods: pods("a", "b"),
		plugins: one(func() *script {
			s := soft("a", "b")
			s.demand.Pods[0].Force = true
			return s
		}), evicted: []string{"a/30"},
		play: func(r *rig) {
			r.end("a")
			r.waits("b")
			r.api.set(allowing)
			r.passes("the eviction of b", func() string {
				if list := r.api.of("b"); list[len(list)-1] != "EvictionAPI b/30!" {
					return fmt.Sprint(list)
				}
				return ""
			})
			r.inFlight("b")
			if e := r.eventsOf("EvictionBlocked"); len(e) != 0 {
				r.t.Errorf("events %q", e)
			}
			r.evicted("a/30")
		},
	}, {
		name: "another pod of the same name", api: func(s *apiServer) { s.replaced["a"] = "another" }, pods: pods("a"),
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.byAPI("EvictionAPI a/30")
			r.inFlight()
			r.evicted()
			if e := r.eventsOf("Evicted"); len(e) != 0 {
				r.t.Errorf("events %q", e)
			}
		},
	}, {
		name: "the API server forbids the eviction", api: func(s *apiServer) { s.refused["a"] = forbidden },
		pods: pods("a", "b"), options: oneAtATime, plugins: one(func() *script { return soft("a", "b") }),
		play: func(r *rig) {
			r.await("the eviction of b", func() string { return differs(r.api.of("b"), []string{"EvictionAPI b/30!"}) })
			r.end("b")
			r.api.set(allowing)
			r.passes("the eviction of a", func() string {
				return differs(r.api.of("a"), []string{"EvictionAPI a/30", "EvictionAPI a/30!"})
			})
			if at := r.api.times("a"); at[1] < 30*time.Second {
				r.t.Errorf("calls at %v", at)
			}
			r.inFlight("a")
			r.evicted()
		},
	}}
}

func blockedCases() []scenario {
	return []scenario{{
		name: "E11: blocked by a disruption budget, which is relaxed", api: refusing(7, "a"), pods: pods("a"),
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.waits("a")
			r.byAPI("EvictionAPI a/30")
			r.api.set(allowing)
			r.passes("the eviction", func() string {
				return differs(r.api.of(""), []string{"EvictionAPI a/30", "EvictionAPI a/30!"})
			})
			if at := r.api.times("a"); at[1] < 7*time.Second {
				r.t.Errorf("calls at %v", at)
			}
			r.inFlight("a")
			r.await("the end of the block", func() string { return differs(blockedUIDs(r), nil) })
			r.event("EvictionBlocked", "requested by plugin p", "disruption budget web needs 3")
			r.evicted()
		},
	}, {
		name: "E11: blocked, and withdrawn", api: refusing(7, "a"), pods: pods("a"),
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.waits("a")
			r.demand(&script{})
			r.called(2) // an answer from before may be late
			r.requested("p", 0)
			r.api.set(allowing)
			r.passes("the end of the attempt", func() string { return differs(blockedUIDs(r), nil) })
			for range 60 {
				r.api.clock.Step(time.Second)
			}
			r.byAPI("EvictionAPI a/30")
			r.evicted()
			r.inFlight()
		},
	}, {
		name: "blocked until the time is over, and tried again", api: refusing(10, "a"), pods: pods("a"),
		options: steady, plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.passes("another attempt", func() string {
				if at := r.api.times("a"); len(at) < 6 || at[len(at)-1] < 49*time.Second {
					return fmt.Sprint(at)
				}
				return ""
			})
			r.await("one event in five minutes", func() string {
				if e := r.eventsOf("EvictionBlocked"); len(e) != 1 {
					return fmt.Sprintf("%q", e)
				}
				return ""
			})
			if at := r.api.times("a"); at[len(at)-1] < 45*time.Second {
				r.t.Errorf("calls at %v", at)
			}
			r.inFlight()
			r.api.set(allowing)
			r.passes("the eviction", func() string {
				if list := r.api.of("a"); list[len(list)-1] != "EvictionAPI a/30!" {
					return fmt.Sprint(list)
				}
				return ""
			})
			r.inFlight("a")
			at := r.api.times("a")
			for i := range at[1:] {
				if pause := at[i+1] - at[i]; pause < 10*time.Second {
					r.t.Errorf("calls at %v", at)
				}
			}
			r.evicted()
		},
	}, {
		name: "blocked, and requested by force", api: refusing(7, "a"), pods: pods("a"),
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.waits("a")
			r.demand(force("a"))
			r.evicted("a/30")
			r.api.set(allowing)
			r.passes("the end of the attempt", func() string { return differs(blockedUIDs(r), nil) })
			r.byAPI("EvictionAPI a/30")
			r.oneVictim()
		},
	}, {
		name: "blocked, and deleted by others", api: refusing(7, "a"), pods: pods("a"),
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.waits("a")
			r.deleted("a", 30)
			r.api.set(allowing)
			for range 60 {
				r.api.clock.Step(time.Second)
			}
			r.byAPI("EvictionAPI a/30")
			r.inFlight()
			r.evicted()
		},
	}, {
		name: "E12: ten are blocked, the eleventh is evicted", pods: eleven(),
		api:     refusing(30, "b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8", "b9"),
		plugins: one(func() *script { return soft(uidsOf(eleven())...) }),
		play: func(r *rig) {
			r.await("the eviction of the eleventh", func() string {
				return differs(r.api.of("c"), []string{"EvictionAPI c/30!"})
			})
			r.await("the calls for the others", func() string {
				if n := len(r.api.of("")); n != 11 {
					return fmt.Sprintf("%d calls", n)
				}
				return ""
			})
			r.inFlight("c")
			r.end("c")
			r.api.set(allowing)
			r.passes("the evictions of the others", func() string {
				n := 0
				for _, call := range r.api.of("") {
					if strings.HasSuffix(call, "!") {
						n++
					}
				}
				if n != 11 {
					return fmt.Sprintf("%d of 11", n)
				}
				return ""
			})
			r.evicted()
		},
	}, {
		name: "E10: the victim of a hard threshold is blocked: another one", api: refusing(30, "a"),
		pods: pods("a", "b", "c"), options: func(o *plugin.Options) {
			steady(o)
			killers(snapshot.EvictionAPI, snapshot.EvictionAPI)(o)
		},
		plugins: one(func() *script { return met(arbiter.Hard, "a", "b", "c") }),
		play: func(r *rig) {
			r.byAPI("EvictionAPI a/30", "EvictionAPI b/30!")
			r.inFlight("b")
			r.evicted()
		},
	}}
}

// eleven are ten pods that go before the eleventh.
func eleven() []*v1.Pod {
	list := []*v1.Pod{pod("c", priority(10))}
	for i := range 10 {
		list = append(list, pod(fmt.Sprint("b", i)))
	}
	return list
}

func uidsOf(pods []*v1.Pod) (list []types.UID) {
	for _, pod := range pods {
		list = append(list, pod.UID)
	}
	return list
}

func blockedUIDs(r *rig) (list []string) {
	for _, uid := range r.killer.Blocked() {
		list = append(list, string(uid))
	}
	return list
}

func noticeCases() []scenario {
	return []scenario{{
		name: "notices: no call of the API server", api: accepting,
		pods:    []*v1.Pod{pod("a", annotated(arbiter.SoftNoticeKey, "true")), pod("b")},
		plugins: one(func() *script { return soft("a", "b") }),
		play: func(r *rig) {
			r.byAPI("EvictionAPI b/30!")
			r.await("a notice", func() string {
				if e := r.eventsOf("SoftEvictionNotice"); len(e) == 0 || !strings.Contains(e[0], "p: too much") {
					return fmt.Sprintf("%q", e)
				}
				return ""
			})
			r.noticed("a")
			r.byAPI("EvictionAPI b/30!")
		},
	}, {
		name: "dry run: no call of the API server", api: accepting, pods: pods("a", "b"),
		options: func(o *plugin.Options) {
			killers(snapshot.DeleteAPI, snapshot.EvictionAPI)(o)
			o.DryRun = plugin.Selector{"*"}
		},
		plugins: one(func() *script {
			s := soft("a", "b")
			s.demand.Pods[0].Force = true
			return s
		}),
		play: func(r *rig) {
			r.byAPI()
			r.evicted()
			r.reload(func(o *plugin.Options) { o.DryRun = nil })
			r.byAPI("DeleteAPI a/30!", "EvictionAPI b/30!")
			r.evicted()
		},
	}, {
		name: "records of candidates, with a disruption budget",
		api: func(s *apiServer) {
			s.budgets = []policyv1.PodDisruptionBudget{{
				ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"},
				Spec: policyv1.PodDisruptionBudgetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"web": ""}},
				},
				Status: policyv1.PodDisruptionBudgetStatus{
					DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4,
				},
			}}
		},
		pods:    []*v1.Pod{pod("a", ofSet), pod("b", ofSet, labelled("web")), pod("c")},
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.byAPI("EvictionAPI a/30!")
			r.scripts["p"].set(func(s *script) {
				s.demand, s.threshold = arbiter.Demand{}, met(arbiter.Soft).threshold
				s.threshold.Candidates = []types.UID{"b", "c"}
			})
			budget := records.Budget{DisruptionsAllowed: 1, CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4}
			r.await("records", func() string {
				var got map[types.UID]records.Record
				r.scripts["p"].set(func(s *script) {
					if n := len(s.records); n > 0 {
						got = s.records[n-1]
					}
				})
				b, c := got["b"], got["c"]
				if len(got) != 2 || len(b.Buckets) != 1 || b.Buckets[0].Count != 1 || b.Budget == nil || *b.Budget != budget ||
					c.UID != "c" || len(c.Buckets) != 0 || c.Budget != nil {
					return fmt.Sprintf("%+v, budget %+v", got, b.Budget)
				}
				return ""
			})
		},
	}, {
		name: "reload: softKiller, while a pod is blocked", api: refusing(7, "a", "b"), pods: pods("a", "b"),
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.waits("a")
			r.reload(killers(snapshot.PodWorker, snapshot.PodWorker))
			r.evicted("a/30")
			r.api.set(allowing)
			r.reload(killers(snapshot.PodWorker, snapshot.DeleteAPI))
			r.demand(soft("b"))
			r.await("the deletion of b", func() string { return differs(r.api.of("b"), []string{"DeleteAPI b/30!"}) })
			r.passes("the end of the attempt", func() string { return differs(blockedUIDs(r), nil) })
			r.byAPI("DeleteAPI b/30!", "EvictionAPI a/30")
			r.evicted("a/30")
		},
	}, {
		name: "reload: killerByQoSLevel", api: refusing(7, "a"),
		pods:    []*v1.Pod{pod("a", annotated(arbiter.QoSLevelKey, "shared_cores"))},
		plugins: one(func() *script { return soft("a") }),
		play: func(r *rig) {
			r.waits("a")
			r.reload(func(o *plugin.Options) {
				o.Rules.Killers.ByQoSLevel = map[string]snapshot.Killer{"shared_cores": snapshot.PodWorker}
			})
			r.evicted("a/30")
			r.byAPI("EvictionAPI a/30")
		},
	}}
}

// ofSet makes a pod one of a set.
func ofSet(pod *v1.Pod) {
	owned("ReplicaSet")(pod)
	pod.OwnerReferences[0].UID = "set"
}
