package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/testutil"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// E1: a plugin that is removed between ThresholdMet and TopEvictionPods is not called again.
func TestE1RemovedPluginIsNotAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, options(), nil, pod("a"))
		p := met(10*time.Second, "a")
		r.setRemote(Remote{Name: "p", Socket: "/p.sock", Plugin: p})
		r.start()
		defer r.stop()
		pass(9 * time.Second)
		r.setRemote()
		before := p.called("EvictPods")
		pass(time.Minute)
		r.expect("calls", text(before, p.called("EvictPods"), p.called("TopEvictionPods")), "2 2 0")
	})
}

// E1: the plugin is removed while its threshold is being asked for: its answer is ignored.
func TestE1PluginRemovedDuringACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, options(), nil, pod("a"))
		p := forcing("a")
		answer := p.demand
		p.demand = func(ctx context.Context, v *View) (*arbiter.Demand, error) {
			<-ctx.Done()
			return answer(ctx, v)
		}
		r.setRemote(Remote{Name: "p", Socket: "/p.sock", Plugin: p})
		r.start()
		defer r.stop()
		pass(time.Second)
		r.setRemote()
		pass(time.Minute)
		r.expect("requests", r.requested(), "")
		r.expect("calls of ThresholdMet", text(p.called("ThresholdMet")), "0")
	})
}

// E3: a plugin that hangs delays no other, neither in the round in which it begins to hang nor later.
func TestE3HangingPluginDelaysNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		honest, rounds := &scripted{}, 0
		honest.demand = func(ctx context.Context, v *View) (*arbiter.Demand, error) {
			rounds++
			return forcing([]types.UID{"a", "b"}[:min(rounds, 2)]...).demand(ctx, v)
		}
		r := newRig(t, options(), map[string]Plugin{"honest": honest, "hangs": hanging(), "hangs-too": hanging()},
			pod("a"), pod("b"))
		r.start()
		defer r.stop()
		pass(gatherTime)
		r.expect("the first round", r.requested(), "a")
		pass(5*time.Second - gatherTime)
		r.expect("the second round, at once", r.requested(), "a b")
		pass(time.Minute)
		r.expect("rounds of the honest plugin", text(honest.called("EvictPods")), "14")
	})
}

// A plugin that neither answers nor ends its call is asked nothing more; what it had requested ends in the third
// round.
func TestE13RequestsOfAHangingPluginEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		p := forcing("a")
		answer, rounds := p.demand, 0
		p.demand = func(ctx context.Context, v *View) (*arbiter.Demand, error) {
			if rounds++; rounds > 1 {
				<-release
			}
			return answer(ctx, v)
		}
		r := newRig(t, options(), map[string]Plugin{"p": p}, pod("a"))
		r.start()
		defer func() { close(release); r.stop() }()
		for i, want := range []string{"a", "a", "a", "a", ""} {
			r.expect(text("round ", i), r.requested(), want)
			pass(5 * time.Second)
		}
		r.expect("calls", text(p.called("EvictPods")), "2")
	})
}

// E6, E5: a remote plugin with the name of one in the tree is not called; one that registers again is a new process.
func TestE6NameOfAPluginInTheTree(t *testing.T) {
	bubble(t, func(t *testing.T) {
		thief, old, young := forcing("a"), forcing("b"), forcing("c")
		r := newRig(t, options(), map[string]Plugin{"mine": &scripted{}}, pod("a"), pod("b"), pod("c"))
		r.setRemote(Remote{Name: "mine", Socket: "/x", Plugin: thief}, Remote{Name: "p", Socket: "/1", Plugin: old})
		r.start()
		defer r.stop()
		r.expect("requests", r.requested(), "b")
		r.setRemote(Remote{Name: "p", Socket: "/2", Plugin: young})
		pass(5 * time.Second)
		r.expect("calls of the thief", text(thief.called("EvictPods")), "0")
		r.expect("requests", r.requested(), "c")
		r.expect("calls of the old endpoint", text(old.called("EvictPods")), "1")
	})
}

// E7: critical pods and pods with skip labels are not shown, and dropped if they are named; so are foreign ones.
func TestE7PodsThatPluginsMayNotName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []string
		p := forcing("label", "critical", "system", "foreign", "a")
		answer := p.demand
		p.demand = func(ctx context.Context, v *View) (*arbiter.Demand, error) {
			for _, pod := range v.Pods {
				seen = append(seen, string(pod.UID))
			}
			return answer(ctx, v)
		}
		o := options()
		o.Skip.LabelKeys = []string{"keep"}
		r := newRig(t, o, map[string]Plugin{"e7": p}, pod("c"), pod("a"),
			pod("label", func(p *v1.Pod) { p.Labels = map[string]string{"keep": ""} }),
			pod("critical", func(p *v1.Pod) { p.Spec.Priority = new(int32(2000000001)) }),
			pod("system", func(p *v1.Pod) { p.Annotations = map[string]string{arbiter.QoSLevelKey: arbiter.SystemCores} }))
		r.start()
		defer r.stop()
		r.expect("shown", strings.Join(seen, " "), "a c")
		r.expect("requests", r.requested(), "a")
		dropped := r.List().Plugins[0].Pods.Dropped
		r.expect("dropped", text(dropped), "map[critical:1 skip_label:1 system_cores:1 unknown_pod:1]")
	})
}

// E9: five forced pods, burst 1: one in each round, the least protected first.
func TestE9ForcedPodsGoInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.Rules.Burst = 1
		with := func(priority int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = &priority } }
		r := newRig(t, o, map[string]Plugin{"p": forcing("a", "b", "c")},
			pod("a", with(3)), pod("b", with(1)), pod("c", with(2)))
		r.start()
		defer r.stop()
		for _, want := range []string{"b", "b c", "b c a"} {
			r.expect("requests", r.requested(), want)
			pass(5 * time.Second)
		}
		r.set(func() { r.expect("rounds of the eviction manager requested", text(r.woken), "3") })
	})
}

// E10: a hard threshold takes its second pod when the first is released or overdue.
func TestE10OneHardVictimAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := met(0)
		p.top = func(_ context.Context, v *View, _ arbiter.Question) (*arbiter.Reply, error) {
			return &arbiter.Reply{Pods: []types.UID{v.Pods[0].UID}}, nil
		}
		r := newRig(t, options(), map[string]Plugin{"p": p}, pod("a"), pod("b"), pod("c"))
		r.start()
		defer r.stop()
		r.expect("first victim", r.requested(), "a")
		r.set(func() { r.inFlight = []eviction.InFlightPod{{UID: "a"}} })
		pass(30 * time.Second)
		r.expect("while it is in flight", r.requested(), "")
		r.expect("questions", text(p.called("TopEvictionPods")), "1")
		r.set(func() { r.inFlight[0].Overdue = true })
		pass(5 * time.Second)
		r.expect("when it is overdue", r.requested(), "b")
		r.set(func() { r.pods, r.inFlight = r.pods[1:], []eviction.InFlightPod{{UID: "b"}} })
		pass(5 * time.Second)
		r.set(func() { r.pods, r.inFlight = r.pods[1:], nil })
		pass(5 * time.Second)
		r.expect("when it is released", r.requested(), "c")
	})
}

// E13: a threshold with a grace of 10 s has its victim after 10 s; one missing answer delays it and does not reset it.
func TestE13GraceOfAThreshold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		steady, interrupted := met(10*time.Second, "a"), met(10*time.Second, "b")
		answer, rounds := interrupted.threshold, 0
		interrupted.threshold = func(ctx context.Context, v *View) (*arbiter.Threshold, error) {
			if rounds++; rounds == 2 {
				return nil, errors.New("temporary")
			}
			return answer(ctx, v)
		}
		r := newRig(t, options(), map[string]Plugin{"p": steady, "q": interrupted}, pod("a"), pod("b"))
		begun := time.Now()
		r.start()
		defer r.stop()
		for r.requested() == "" {
			pass(100 * time.Millisecond)
		}
		r.expect("first victim", text(r.requested(), time.Since(begun) <= 10*time.Second+100*time.Millisecond), "a true")
		for r.requested() != "a b" {
			pass(100 * time.Millisecond)
		}
		took := time.Since(begun).Round(time.Second)
		r.expect("second victim", took.String(), "20s")
	})
}

// E14, E15: plugins share nothing: the options that two answers share are left as they are, and the merge is the same
// in whatever order they answer.
func TestE15PluginsThatNameOnePod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		shared := new(int64(0))
		asking := func(delay time.Duration, force bool) *scripted {
			return &scripted{demand: func(context.Context, *View) (*arbiter.Demand, error) {
				time.Sleep(delay)
				return &arbiter.Demand{Pods: []arbiter.PodDemand{{UID: "a", Reason: "r", Force: force, GraceSeconds: shared}}}, nil
			}}
		}
		r := newRig(t, options(), map[string]Plugin{"b": asking(0, false), "a": asking(time.Millisecond, true)}, pod("a"))
		r.start()
		defer r.stop()
		pass(gatherTime)
		q := r.Requests()[0]
		r.expect("request", text(q.Reason, q.Forced, *q.GraceSeconds, *shared), "a: r; b: r true 1 0")
		r.set(func() { r.expect("settled together", text(r.woken), "1") })
	})
}

// A plugin in dry run is asked everything; what it answers is counted and has no effect, not even on the burst of
// others.
func TestDryRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dry := met(0, "b")
		dry.demand = forcing("a", "c").demand
		answer := dry.threshold
		dry.threshold = func(ctx context.Context, v *View) (*arbiter.Threshold, error) {
			threshold, err := answer(ctx, v)
			threshold.Condition = &arbiter.ConditionReport{Name: "Hot", Met: true}
			return threshold, err
		}
		o := options()
		o.DryRun, o.Rules.Burst = Selector{"dry"}, 3
		r := newRig(t, o, map[string]Plugin{"dry": dry, "live": forcing("d", "e", "f")},
			pod("a"), pod("b"), pod("c"), pod("d"), pod("e"), pod("f"))
		before := counted(t, "dry")
		r.start()
		defer r.stop()
		r.expect("requests", r.requested(), "d e f")
		r.expect("conditions", r.conditionsNow(), "")
		r.expect("asked, counted", text(dry.called("TopEvictionPods"), counted(t, "dry")-before), "1 3")
		pass(time.Minute)
		r.expect("counted once", text(counted(t, "dry")-before), "3")
		o.DryRun = nil
		r.SetOptions(o)
		pass(time.Minute)
		r.expect("without dry run", text(len(r.Requests()), r.conditionsNow()), "6 Hot=true")
	})
}

func counted(t *testing.T, plugin string) float64 {
	v, err := testutil.GetCounterMetricValue(dryRunVictims.WithLabelValues(plugin))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Options take effect at once: what a disabled plugin has requested ends, and a shorter period counts.
func TestOptionsChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, q := forcing("a"), forcing("b")
		o := options()
		o.Period = time.Minute
		r := newRig(t, o, map[string]Plugin{"p": p, "q": q}, pod("a"), pod("b"))
		r.start()
		defer r.stop()
		r.expect("both", r.requested(), "a b")
		o.InTree, o.Period = Selector{"*", "-p"}, time.Second
		r.SetOptions(o)
		synctest.Wait()
		r.expect("one disabled", r.requested(), "b")
		pass(10 * time.Second)
		r.expect("calls", text(p.called("EvictPods"), q.called("EvictPods") >= 10), "1 true")
	})
}

// Without an enabled plugin nothing happens: no timer, no question about pods, no request. In a bubble whose
// goroutines all wait for channels, time that passes would be a timer's.
func TestNoPluginEnabled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.Remote, o.InTree = nil, nil
		p := forcing("a")
		r := newRig(t, o, map[string]Plugin{"p": p}, pod("a"))
		r.setRemote(Remote{Name: "q", Plugin: p})
		r.start()
		defer r.stop()
		asked := 0
		pods := r.Driver.config.Pods
		r.Driver.config.Pods = func() []*v1.Pod { asked++; return pods() }
		r.deliver(crossing())
		pass(time.Hour)
		r.expect("calls, looks at pods", text(p.called("EvictPods"), asked), "0 0")
		if r.Requests() != nil || r.Conditions() != nil || r.last.Load() != nil {
			t.Error("there are requests, conditions or a round that is kept")
		}
	})
}

func crossing() *eviction.Round {
	r := &eviction.Round{Snapshot: &snapshot.Snapshot{}}
	r.Decision.Conditions[0] = policy.Condition{Type: v1.NodeMemoryPressure, HardMet: true}
	return r
}

// deliver delivers a round as the eviction manager does.
func (r *rig) deliver(round *eviction.Round) {
	if r.NeedsRound(round) {
		r.Round(r.t.Context(), round)
	}
}

// When memory crosses a threshold plugins are asked at once, with the round in which it did, at most once a second.
func TestMemoryCrossing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var views []*View
		p := &scripted{demand: func(_ context.Context, v *View) (*arbiter.Demand, error) {
			views = append(views, v)
			return nil, nil
		}}
		o := options()
		o.Period = time.Minute
		r := newRig(t, o, map[string]Plugin{"p": p})
		r.start()
		defer r.stop()
		pass(10 * time.Second)
		round := crossing()
		r.deliver(round)
		synctest.Wait()
		if len(views) != 2 || views[1].Node != round {
			t.Fatalf("%d rounds", len(views))
		}
		for range 100 {
			r.deliver(crossing())
			pass(100 * time.Millisecond)
		}
		r.expect("rounds in ten seconds of crossings", text(len(views)), "12")
		steady := crossing()
		steady.Before = slices.Clone(steady.Decision.Conditions[:])
		r.deliver(steady)
		pass(5 * time.Second)
		r.expect("rounds without a crossing", text(len(views)), "12")
	})
}

// A plugin that panics has failed to answer; others and later rounds go on.
func TestPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := forcing("a")
		answer, rounds := p.demand, 0
		p.demand = func(ctx context.Context, v *View) (*arbiter.Demand, error) {
			if rounds++; rounds == 1 {
				panic("broken")
			}
			return answer(ctx, v)
		}
		r := newRig(t, options(), map[string]Plugin{"p": p, "q": forcing("b")}, pod("a"), pod("b"))
		r.start()
		defer r.stop()
		r.expect("while it panics", r.requested(), "b")
		row := r.List().Plugins[0]
		r.expect("on the page", text(row.Name, row.Health.LastError), "p panic: broken")
		pass(5 * time.Second)
		r.expect("in the next round", r.requested(), "b a")
	})
}

// Of an answer with more than 500 pods the rest is dropped and counted; the answer itself is not changed.
func TestAnswersAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var uids []types.UID
		var pods []*v1.Pod
		for i := range 600 {
			uids = append(uids, types.UID(fmt.Sprintf("%03d", i)))
			pods = append(pods, pod(uids[i]))
		}
		o := options()
		o.Rules.Burst, o.Rules.MaxInFlight = -1, 1000
		p := met(0, uids...)
		p.demand = forcing(uids...).demand
		r := newRig(t, o, map[string]Plugin{"bounded": p}, pods...)
		r.start()
		defer r.stop()
		row := r.List().Plugins[0].Pods
		r.expect("asked, dropped", text(row.Asked, row.Dropped, len(r.Requests())), "500 map[too_many:200] 500")
	})
}

// The page shows what came of answers.
func TestPage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := met(0, "a")
		r := newRig(t, options(), map[string]Plugin{"p": p}, pod("a"), pod("b"))
		r.setRemote(Remote{Name: "remote", Socket: "/r.sock", Plugin: reporting("Hot")})
		r.start()
		defer r.stop()
		r.set(func() { r.inFlight = []eviction.InFlightPod{{UID: "a"}} })
		r.Result(t.Context(), &eviction.Result{Kind: eviction.KillAccepted, Answer: podkill.Begun, Victim: &policy.Victim{
			Pod: &snapshot.Pod{Facts: &snapshot.Facts{UID: "a"}}, Cause: policy.Cause{Kind: policy.PluginRequest, Plugins: "p"},
		}})
		list := r.List()
		if len(list.Plugins) != 2 || len(list.Requests) != 1 || len(list.Conditions) != 1 {
			t.Fatalf("%+v", list)
		}
		first, second, q := list.Plugins[0], list.Plugins[1], list.Requests[0]
		r.expect("plugin", text(first.Name, first.InTree, first.Enabled, first.Pods, first.LastAnswer.ThresholdType,
			first.LastAnswer.TopPods), "p true true {1 0 1 1 map[]} HARD_MET 1")
		th := first.Thresholds[0]
		r.expect("threshold", text(th.Type, th.Scope, th.Operator, th.Observed, th.Target, th.Confirmed),
			"HARD_MET memory LESS_THAN 1 2 true")
		r.expect("remote", text(second.Name, second.Socket, second.InTree), "remote /r.sock false")
		r.expect("request", text(q.Namespace, q.Name, q.Plugins, q.State), "ns name-a [p] InFlight")
		r.expect("condition", text(list.Conditions[0].Target, list.Conditions[0].Name, list.Conditions[0].True),
			"Node Hot true")
		if !list.Time.Equal(list.Conditions[0].LastMet) {
			t.Errorf("last met %v, now %v", list.Conditions[0].LastMet, list.Time)
		}
	})
}

// Nothing required may be missing.
func TestConfigIsChecked(t *testing.T) {
	r := newRig(t, options(), nil)
	r.config.Wake = nil
	if _, err := New(r.config); err == nil {
		t.Error("a driver without Wake")
	}
	r.config.Options.Period = 0
	if _, err := New(r.config); err == nil {
		t.Error("a driver without period")
	}
}
