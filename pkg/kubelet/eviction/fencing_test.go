package eviction

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// fakeFencer is a Fencer for the pods of a fake node, and the only fence that it sets.
type fakeFencer struct {
	n *node

	mu sync.Mutex
	// calls are all calls, with their times since the first one.
	calls []string
	begin time.Time
	// prepared are the pods for which a fence was prepared.
	prepared []string
	state    FenceState
	// setErr is the error of the first fence, againErr that of others, checkErr that of checks.
	setErr, againErr, checkErr error
	gone, oom, stuck           bool
	// failures is how many kills fail at once.
	failures int
}

func (f *fakeFencer) call(format string, args ...any) {
	if f.begin.IsZero() {
		f.begin = time.Now()
	}
	f.calls = append(f.calls, fmt.Sprintf("%s at %v", fmt.Sprintf(format, args...), time.Since(f.begin)))
}

func (f *fakeFencer) Prepare(pod *v1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.prepared = append(f.prepared, pod.Name)
}

func (f *fakeFencer) Fence(pod *v1.Pod, l policy.Fence) (Fence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call("fence %s %d", pod.Name, l.Slack)
	if f.setErr != nil || f.gone {
		return nil, f.setErr
	}
	return f, nil
}

// Kill ends the kill that is under way for the pod.
func (f *fakeFencer) Kill(ctx context.Context, pod *v1.Pod) error {
	f.mu.Lock()
	f.call("kill %s", pod.Name)
	stuck, fails := f.stuck, f.failures > 0
	f.failures--
	f.mu.Unlock()
	if fails {
		return errors.New("no kill")
	}
	if stuck {
		<-ctx.Done()
		return ctx.Err()
	}
	f.n.mu.Lock()
	defer f.n.mu.Unlock()
	f.n.pods[pod.Name].stopped = true
	return nil
}

func (f *fakeFencer) At() int64 { return 300 * mi }

func (f *fakeFencer) Check() (FenceState, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.checkErr
}

func (f *fakeFencer) Set() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call("set again")
	return f.againErr
}

func (f *fakeFencer) OOMKilled() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.oom
}

func (f *fakeFencer) Restore() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call("restore")
	return nil
}

func (f *fakeFencer) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeFencer) made() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// fenceReports is a sink of the ends of fences.
type fenceReports struct {
	mu    sync.Mutex
	ended []FenceReport
	kinds []ResultKind
}

func (*fenceReports) Name() string                  { return "fences" }
func (*fenceReports) Round(context.Context, *Round) {}
func (s *fenceReports) Result(_ context.Context, r *Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds = append(s.kinds, r.Kind)
	if r.Kind == FenceEnded {
		s.ended = append(s.ended, *r.Fence)
	}
}

// fencePlay is a manager with one pod "hog" to be fenced; killing the pod takes 10 s without a fence.
type fencePlay struct {
	*node
	fencer  *fakeFencer
	reports *fenceReports
	m       *Manager
	wait    func(time.Duration)
	victim  *policy.Victim
	// answer replaces the answer of the pod workers.
	answer podkill.Answer
	// detail is that of the last request, requested what it was when that was made.
	detail    atomic.Pointer[func() string]
	requested atomic.Value
}

func fences(t *testing.T, prepare func(p *fencePlay), play func(p *fencePlay)) *fencePlay {
	t.Helper()
	n := newNode()
	p := &fencePlay{node: n, fencer: &fakeFencer{n: n}, reports: &fenceReports{}, answer: podkill.Begun}
	n.add("hog", gi)
	n.available(2 * gi)
	n.killTakes = 10 * time.Second
	p.victim = hogVictim()
	prepare(p)
	config := n.config(t, hard("1Gi"))
	config.Fencer = p.fencer
	config.Sinks = append(config.Sinks, p.reports)
	kill := config.Kill
	config.Kill = func(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
		p.detail.Store(&r.Disruption.Detail)
		p.requested.Store(p.described())
		if p.answer == podkill.Refused {
			return podkill.Refused, nil
		}
		_, ended := kill(ctx, r)
		return p.answer, ended
	}
	run(t, n, config, func(m *Manager, wait func(time.Duration)) {
		p.m, p.wait = m, wait
		wait(time.Second)
		m.evict(t.Context(), 1, p.victim)
		play(p)
	})
	return p
}

// hogVictim is the pod "hog", to be fenced.
func hogVictim() *policy.Victim {
	return &policy.Victim{
		Pod:   &snapshot.Pod{Facts: &snapshot.Facts{UID: "hog", Name: "hog", Namespace: "ns"}},
		Cause: policy.Cause{Kind: policy.HardThreshold}, GraceSeconds: 1, Message: "low on memory",
		Fence: &policy.Fence{Slack: snapshot.Bytes(8 * mi)},
	}
}

func (p *fencePlay) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := p.fencer.made(); !slices.Equal(got, want) {
		t.Errorf("calls\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (p *fencePlay) expectEnd(t *testing.T, want ...FenceReport) {
	t.Helper()
	synctest.Wait()
	p.reports.mu.Lock()
	defer p.reports.mu.Unlock()
	if !reflect.DeepEqual(p.reports.ended, want) {
		t.Errorf("reports %+v, want %+v", p.reports.ended, want)
	}
}

func TestFencedPodIsKilledByItsCgroup(t *testing.T) {
	const at = 300 * mi
	tests := map[string]struct {
		prepare func(p *fencePlay)
		// later happens 200 ms after the fence was set.
		later func(p *fencePlay)
		calls []string
		end   FenceReport
	}{
		"after its second": {
			calls: []string{"fence hog 8388608 at 0s", "kill hog at 1s", "restore at 1s"},
			end:   FenceReport{At: at, Outcome: FenceKilled, Reason: killedOver},
		},
		"not if it ends before": {
			prepare: func(p *fencePlay) { p.killTakes = 500 * time.Millisecond },
			calls:   []string{"fence hog 8388608 at 0s", "restore at 500ms"},
			end:     FenceReport{At: at, Outcome: FenceExited},
		},
		"at once if there is no fence": {
			prepare: func(p *fencePlay) { p.fencer.setErr = errors.New("no fence") },
			calls:   []string{"fence hog 8388608 at 0s", "kill hog at 0s"},
			end:     FenceReport{Outcome: FenceNotSet, Reason: killedNotSet},
		},
		"at once if it hits the fence": {
			later: func(p *fencePlay) { p.fencer.change(func() { p.fencer.state.Hit = true }) },
			calls: []string{"fence hog 8388608 at 0s", "kill hog at 220ms", "restore at 220ms"},
			end:   FenceReport{At: at, Outcome: FenceKilled, Reason: killedHit},
		},
		"at once if the OOM killer has begun": {
			later: func(p *fencePlay) { p.fencer.change(func() { p.fencer.state.Hit, p.fencer.oom = true, true }) },
			calls: []string{"fence hog 8388608 at 0s", "kill hog at 220ms", "restore at 220ms"},
			end:   FenceReport{At: at, Outcome: FenceOOMKilled, Reason: killedHit},
		},
		"at once if the fence cannot be read": {
			later: func(p *fencePlay) { p.fencer.change(func() { p.fencer.checkErr = errors.New("unreadable") }) },
			calls: []string{"fence hog 8388608 at 0s", "kill hog at 220ms", "restore at 220ms"},
			end:   FenceReport{At: at, Outcome: FenceKilled, Reason: killedUnread},
		},
		"at once if half of what was left is used up": {
			later: func(p *fencePlay) { p.available(gi - mi); p.m.Wake() },
			calls: []string{"fence hog 8388608 at 0s", "kill hog at 220ms", "restore at 220ms"},
			end:   FenceReport{At: at, Outcome: FenceKilled, Reason: killedHalved},
		},
		"not before half of what was left is used up": {
			later: func(p *fencePlay) { p.available(gi + 10*mi); p.m.Wake() },
			calls: []string{"fence hog 8388608 at 0s", "kill hog at 1s", "restore at 1s"},
			end:   FenceReport{At: at, Outcome: FenceKilled, Reason: killedOver},
		},
		"after its fence was set again three times": {
			later: func(p *fencePlay) { p.fencer.change(func() { p.fencer.state.Replaced = true }) },
			calls: []string{"fence hog 8388608 at 0s", "set again at 220ms", "set again at 240ms", "set again at 260ms",
				"kill hog at 280ms", "restore at 280ms"},
			end: FenceReport{At: at, Outcome: FenceKilled, Reason: killedReplaced},
		},
		"at once if its fence cannot be set again": {
			prepare: func(p *fencePlay) { p.fencer.againErr = errors.New("no fence") },
			later:   func(p *fencePlay) { p.fencer.change(func() { p.fencer.state.Replaced = true }) },
			calls:   []string{"fence hog 8388608 at 0s", "set again at 220ms", "kill hog at 220ms", "restore at 220ms"},
			end:     FenceReport{At: at, Outcome: FenceKilled, Reason: killedNotSet},
		},
		"not if its cgroup is gone": {
			later: func(p *fencePlay) { p.fencer.change(func() { p.fencer.state.Gone = true }) },
			calls: []string{"fence hog 8388608 at 0s", "restore at 220ms"},
			end:   FenceReport{At: at, Outcome: FenceExited},
		},
		"again if that fails": {
			prepare: func(p *fencePlay) { p.fencer.failures = 2 },
			calls: []string{"fence hog 8388608 at 0s", "kill hog at 1s", "kill hog at 2s", "kill hog at 3s",
				"restore at 3s"},
			end: FenceReport{At: at, Outcome: FenceKilled, Reason: killedOver},
		},
		"again if there is no fence and that fails": {
			prepare: func(p *fencePlay) { p.fencer.setErr, p.fencer.failures = errors.New("no fence"), 1 },
			calls:   []string{"fence hog 8388608 at 0s", "kill hog at 0s", "kill hog at 1s"},
			end:     FenceReport{Outcome: FenceNotSet, Reason: killedNotSet},
		},
		"even if it does not end": {
			prepare: func(p *fencePlay) { p.fencer.stuck, p.killTakes = true, 9500*time.Millisecond },
			calls: []string{"fence hog 8388608 at 0s", "kill hog at 1s", "kill hog at 2.7s", "kill hog at 3.7s",
				"kill hog at 4.7s", "kill hog at 5.7s", "kill hog at 6.7s", "kill hog at 7.7s", "kill hog at 8.7s",
				"restore at 9.5s"},
			end: FenceReport{At: at, Outcome: FenceKilled, Reason: killedOver},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := fences(t, func(p *fencePlay) {
					if test.prepare != nil {
						test.prepare(p)
					}
				}, func(p *fencePlay) {
					p.wait(210 * time.Millisecond)
					if test.later != nil {
						test.later(p)
					}
					p.wait(20 * time.Second)
				})
				p.expect(t, test.calls...)
				p.expectEnd(t, test.end)
				if events := p.eventsOf(eventFenced); len(events) != 1 || !strings.Contains(events[0], test.end.String()) {
					t.Errorf("events %q", events)
				}
			})
		})
	}
}

func TestRequestsThatFenceNothing(t *testing.T) {
	for name, prepare := range map[string]func(p *fencePlay){
		"refused":           func(p *fencePlay) { p.answer = podkill.Refused },
		"unchanged":         func(p *fencePlay) { p.answer = podkill.Unchanged },
		"already stopped":   func(p *fencePlay) { p.answer = podkill.AlreadyStopped },
		"decided so":        func(p *fencePlay) { p.victim.Fence = nil },
		"ended before that": func(p *fencePlay) { p.pods["hog"].stopped = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := fences(t, prepare, func(p *fencePlay) { p.wait(20 * time.Second) })
				p.expect(t)
				p.expectEnd(t)
				if p.m.Fenced("hog") {
					t.Error("the pod cannot be fenced later")
				}
			})
		})
	}
}

// The cgroup was removed before the fence was set.
func TestFenceOfAPodThatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fences(t, func(p *fencePlay) { p.fencer.gone = true }, func(p *fencePlay) { p.wait(20 * time.Second) })
		p.expect(t, "fence hog 8388608 at 0s")
		p.expectEnd(t)
	})
}

// A second decision hastens the pod: it keeps its fence. Another one could restore the limit of the first.
func TestPodHasOneFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fences(t, func(*fencePlay) {}, func(p *fencePlay) {
			p.wait(500 * time.Millisecond)
			p.m.evict(t.Context(), 2, p.victim)
			p.wait(20 * time.Second)
		})
		p.expect(t, "fence hog 8388608 at 0s", "kill hog at 1s", "restore at 1s")
	})
}

func TestStopLeavesNoFence(t *testing.T) {
	for name, test := range map[string]struct {
		stuck bool
		calls []string
	}{
		"killed": {calls: []string{"fence hog 8388608 at 0s", "kill hog at 210ms", "restore at 210ms"}},
		"stuck":  {stuck: true, calls: []string{"fence hog 8388608 at 0s", "kill hog at 210ms", "restore at 910ms"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				p := &fencePlay{node: n, fencer: &fakeFencer{n: n, stuck: test.stuck}, reports: &fenceReports{}}
				n.add("hog", gi)
				n.available(2 * gi)
				n.killTakes = 10 * time.Second
				config := n.config(t, hard("1Gi"))
				config.Fencer, config.Sinks = p.fencer, append(config.Sinks, p.reports)
				m, err := New(config)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { m.Run(ctx); close(done) }()
				m.evict(ctx, 1, &policy.Victim{
					Pod:          &snapshot.Pod{Facts: &snapshot.Facts{UID: "hog", Name: "hog", Namespace: "ns"}},
					GraceSeconds: 1, Fence: &policy.Fence{Slack: snapshot.Bytes(8 * mi)},
				})
				<-time.After(210 * time.Millisecond)
				cancel()
				<-done
				p.expect(t, test.calls...)
				p.expectEnd(t, FenceReport{At: 300 * mi, Outcome: FenceKilled, Reason: killedStopping})
			})
		})
	}
}

// The status of the pod gets the detail when its containers have ended, which is before the kill request has.
func TestFenceInTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fenced, killed, after string
		p := fences(t, func(*fencePlay) {}, func(p *fencePlay) {
			p.wait(500 * time.Millisecond)
			fenced = p.described()
			p.wait(505 * time.Millisecond)
			killed = p.described()
			p.wait(20 * time.Second)
			after = p.described()
		})
		want := []string{
			"", "The pod was fenced at 300Mi of memory and ended by itself. ",
			"The pod was fenced at 300Mi of memory and killed by its cgroup. ",
			"The pod was fenced at 300Mi of memory and killed by its cgroup. ",
		}
		if got := []string{p.requested.Load().(string), fenced, killed, after}; !slices.Equal(got, want) {
			t.Errorf("details %q, want %q", got, want)
		}
	})
}

// described returns the detail that the request has, empty before the request and without one.
func (p *fencePlay) described() string {
	detail := p.detail.Load()
	if detail == nil || *detail == nil {
		return ""
	}
	return (*detail)()
}

// TestAVictimThatBeginsToGrowIsFenced: a pod that uses all that is above the threshold is evicted. It does not grow
// then, so that it has no fence; it begins to grow while it is being stopped.
func TestAVictimThatBeginsToGrowIsFenced(t *testing.T) {
	for _, rate := range []int64{10, 400} {
		synctest.Test(t, func(t *testing.T) {
			b := newBurst(t, 100*mi, 0, "hog")
			f := &fakeFencer{n: b.node}
			b.config.Fencer, b.killTakes = f, 2*time.Second
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(15 * time.Second)
				b.mu.Lock()
				b.pods["hog"].memory += 102 * mi
				b.mu.Unlock()
				wait(time.Second)
				if got := b.killed(); len(got) != 1 || len(f.made()) != 0 {
					t.Errorf("kills %v, fences %v, want one without a fence", got, f.made())
				}
				b.grows("hog", rate*mi)
				wait(100 * time.Millisecond)
				if got := f.made(); (len(got) == 1) != (rate == 400) {
					t.Errorf("%d MiB/s: fences %v", rate, got)
				}
				wait(10 * time.Second)
				if got := b.killed(); len(got) != 1 {
					t.Errorf("kills %v, want one", got)
				}
			})
		})
	}
}

// A large idle pod is evicted without a fence while the runtime hangs: its request ends as overdue after ten seconds.
// Then it begins to grow while it is still being stopped. It gets its fence, and is killed at once.
func TestOverdueVictimBeginsToGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, mi, 0, "decoy")
		b.capacity = 128 * gi
		b.add("big", 4*gi)
		f := &fakeFencer{n: b.node}
		b.config.Fencer = f
		b.config.Memory, b.killTakes = b.kernels()["cheap"], 5*time.Minute
		b.available(110 * mi)
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			wait(12 * time.Second)
			b.grows("decoy", 5*mi)
			wait(4 * time.Second)
			b.freeze("decoy")
			wait(12 * time.Second)
			b.available(90 * mi)
			wait(2 * time.Second)
			b.grows(b.fencer.victims()[0].pod, 100*mi)
			for begin := time.Now(); time.Since(begin) < 2*time.Second && b.left() > 0 && len(f.made()) < 2; {
				wait(time.Millisecond)
			}
			if calls := f.made(); len(calls) < 2 || !strings.HasPrefix(calls[0], "fence big ") ||
				calls[1] != "kill big at 0s" {
				t.Errorf("calls %q with %d MiB left, want a fence and a kill at once", calls, b.left()/mi)
			}
		})
	})
}

// A victim of a memory threshold without a fence is so late that it may be evicted again. It is evicted for PIDs, with
// a fence of processes. What is said about that fence is about processes.
func TestLateFenceOfProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := fences(t, func(p *fencePlay) {
			p.victim.Fence, p.victim.Cause.Signal = nil, snapshot.MemoryAvailable
			p.killTakes = 5 * time.Minute
		}, func(p *fencePlay) {
			p.wait(220 * time.Second) // It is overdue, and no longer in flight.
			again := *p.victim
			again.Cause.Signal, again.Fence = snapshot.PIDAvailable, &policy.Fence{PIDs: true}
			p.m.evict(t.Context(), 2, &again)
			p.wait(5 * time.Second)
		})
		synctest.Wait()
		p.reports.mu.Lock()
		defer p.reports.mu.Unlock()
		if len(p.reports.ended) != 1 || !p.reports.ended[0].PIDs ||
			!strings.Contains(p.reports.ended[0].String(), "processes") {
			t.Errorf("calls %q, reports %+v", p.fencer.made(), p.reports.ended)
		}
	})
}

// The fence of the pod that grows fastest is prepared before the threshold is met, once.
func TestFenceIsPreparedBeforeTheCrossing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBurst(t, 200*mi, 0, "hog", "slow")
		f := &fakeFencer{n: b.node}
		b.config.Fencer = f
		prepared := func() (list []string) {
			f.change(func() { list = slices.Clone(f.prepared) })
			return list
		}
		run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
			wait(15 * time.Second)
			b.grows("slow", 5*mi)
			wait(5 * time.Second)
			expect(t, "prepared while no threshold is near", prepared(), nil)
			b.grows("hog", 100*mi)
			wait(1500 * time.Millisecond)
			expect(t, "prepared before the crossing", prepared(), []string{"hog"})
			expect(t, "calls before the crossing", f.made(), nil)
			wait(300 * time.Millisecond)
			expect(t, "prepared", prepared(), []string{"hog"})
			if len(f.made()) == 0 {
				t.Error("no fence")
			}
		})
	})
}
