package plugin

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
)

// E13: a round that begins while a plugin answers to a crossing counts no answer as missing.
func TestE13CrossingBeforeARound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := met(10*time.Second, "a")
		answer := p.threshold
		p.threshold = func(ctx context.Context, v *View) (*arbiter.Threshold, error) {
			<-time.After(50 * time.Millisecond)
			return answer(ctx, v)
		}
		r := newRig(t, options(), map[string]Plugin{"p": p}, pod("a"))
		r.start()
		defer r.stop()
		for range 2 {
			pass(4990 * time.Millisecond)
			r.deliver(crossing())
			pass(10 * time.Millisecond)
		}
		pass(100 * time.Millisecond)
		row := r.List().Plugins[0]
		r.expect("missing answers", text(row.Thresholds[0].Missing, row.Thresholds[0].MetSeconds), "0 9.99")
	})
}

// E13: the clock of a plugin that always answers after the next round has begun runs all the same.
func TestE13ClockOfASlowPlugin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := met(10*time.Second, "a")
		answer := p.threshold
		p.threshold = func(ctx context.Context, v *View) (*arbiter.Threshold, error) {
			select {
			case <-time.After(1500 * time.Millisecond):
			case <-ctx.Done():
			}
			return answer(ctx, v)
		}
		o := options()
		o.Period = time.Second
		r := newRig(t, o, map[string]Plugin{"p": p}, pod("a"))
		r.start()
		defer r.stop()
		pass(12 * time.Second)
		r.expect("requests", r.requested(), "a")
	})
}

// An answer that has just come in when a round begins is settled before it, so that it does not count beside the next
// answer of the plugin.
func TestAnswerJustBeforeARound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p, rounds := &scripted{}, 0
		p.demand = func(ctx context.Context, v *View) (*arbiter.Demand, error) {
			if rounds++; rounds > 1 {
				return nil, nil
			}
			<-time.After(5*time.Second - gatherTime/2)
			return forcing("a").demand(ctx, v)
		}
		r := newRig(t, options(), map[string]Plugin{"p": p, "hangs": hanging()}, pod("a"))
		r.start()
		defer r.stop()
		pass(5*time.Second + 2*gatherTime)
		r.expect("rounds, requests", text(rounds, r.requested()), "2 ")
	})
}

// An answer that comes in just after a round has begun replaces the note that it is missing: what it does not ask for
// any more is not requested.
func TestAnswerJustAfterARound(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &scripted{}
		var rounds atomic.Int32
		p.demand = func(ctx context.Context, v *View) (*arbiter.Demand, error) {
			if rounds.Add(1) == 1 {
				return forcing("a").demand(ctx, v)
			}
			select {
			case <-time.After(5*time.Second + gatherTime/4):
			case <-ctx.Done():
			}
			return nil, nil
		}
		other := &scripted{demand: func(context.Context, *View) (*arbiter.Demand, error) {
			<-time.After(gatherTime / 2)
			return nil, nil
		}}
		o := options()
		o.CallTimeout = 10 * time.Second
		r := newRig(t, o, map[string]Plugin{"p": p, "other": other}, pod("a"))
		r.start()
		defer r.stop()
		pass(10 * time.Second)
		r.expect("rounds, requests", text(rounds.Load(), r.requested()), "2 a")
		pass(2 * gatherTime)
		r.expect("rounds, requests", text(rounds.Load(), r.requested()), "2 ")
		pass(5 * time.Second)
	})
}

// A plugin that registers again and again has no more rounds than others, and no larger burst.
func TestRoundsOfAPluginThatRegistersAgainAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, options(), nil, pod("a"), pod("b"), pod("c"), pod("d"))
		p := forcing("a", "b", "c", "d")
		r.start()
		defer r.stop()
		for range 49 {
			r.setRemote(Remote{Name: "p", Socket: "/p.sock", Plugin: p, Registered: time.Now()})
			pass(100 * time.Millisecond)
			r.setRemote()
		}
		r.expect("calls in 4.9 seconds", text(p.called("EvictPods")), "1")
		r.setRemote(Remote{Name: "p", Socket: "/p.sock", Plugin: p, Registered: time.Now()})
		pass(100 * time.Millisecond)
		r.expect("calls, requests", text(p.called("EvictPods"), r.requested()), "2 a b c")
	})
}

// The first answer waits gatherTime for others, however many of them come in meanwhile.
func TestE3AnswersThatKeepComingIn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		plugins := map[string]Plugin{"first": forcing("a"), "hangs": hanging()}
		for i := range 9 {
			plugins[fmt.Sprint("p", i)] = &scripted{demand: func(context.Context, *View) (*arbiter.Demand, error) {
				<-time.After(time.Duration(i+1) * gatherTime / 2)
				return nil, nil
			}}
		}
		r := newRig(t, options(), plugins, pod("a"))
		r.start()
		defer r.stop()
		pass(gatherTime)
		r.expect("requests", r.requested(), "a")
		pass(time.Second)
	})
}

// A pod in flight whose containers have ended keeps its place until it is released.
func TestPodsInFlightThatHaveEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.Rules.MaxInFlight = 1
		r := newRig(t, o, map[string]Plugin{"p": forcing("a")}, pod("a"))
		r.inFlight = []eviction.InFlightPod{{UID: "ended"}}
		r.start()
		defer r.stop()
		r.expect("while it is in flight", r.requested(), "")
		r.set(func() { r.inFlight = nil })
		pass(5 * time.Second)
		r.expect("when it is released", r.requested(), "a")
	})
}

// E15: the shortest of several grace periods counts, among them the pod's own.
func TestE15ThePodsOwnGrace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asking := func(grace *int64) *scripted {
			return &scripted{demand: func(context.Context, *View) (*arbiter.Demand, error) {
				return &arbiter.Demand{Pods: []arbiter.PodDemand{
					{UID: "default", Force: true, GraceSeconds: grace}, {UID: "long", Force: true, GraceSeconds: grace},
				}}, nil
			}}
		}
		r := newRig(t, options(), map[string]Plugin{"p": asking(nil), "q": asking(new(int64(40)))}, pod("default"),
			pod("long", func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(50)) }))
		r.start()
		defer r.stop()
		q := r.Requests()
		if len(q) != 2 || q[0].GraceSeconds != nil || q[1].GraceSeconds == nil || *q[1].GraceSeconds != 40 {
			t.Errorf("%+v", q)
		}
	})
}

// A plugin that did not answer the last time delays nobody the next time, not even for gatherTime.
func TestE3FailedPluginIsNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		rounds := 0
		p := &scripted{demand: func(ctx context.Context, v *View) (*arbiter.Demand, error) {
			if rounds++; rounds < 3 {
				return &arbiter.Demand{}, nil
			}
			return forcing("a").demand(ctx, v)
		}}
		o := options()
		o.CallTimeout = time.Second
		r := newRig(t, o, map[string]Plugin{"p": p, "hangs": hanging()}, pod("a"))
		r.start()
		defer r.stop()
		pass(10 * time.Second)
		r.expect("rounds, requests", text(rounds, r.requested()), "3 a")
	})
}

// A plugin that has a call under way when memory crosses a threshold is asked again when that has ended.
func TestCrossingDuringACall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &scripted{demand: func(context.Context, *View) (*arbiter.Demand, error) {
			<-time.After(time.Second)
			return nil, nil
		}}
		o := options()
		o.Period = time.Minute
		r := newRig(t, o, map[string]Plugin{"p": p})
		r.start()
		defer r.stop()
		pass(500 * time.Millisecond)
		r.deliver(crossing())
		pass(3 * time.Second)
		r.expect("calls", text(p.called("EvictPods")), "2")
	})
}
