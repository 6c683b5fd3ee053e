package eviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// sinkRecorder is a sink that records what it receives.
type sinkRecorder struct {
	mu      sync.Mutex
	entries []string
	rounds  []*Round
	results []*Result
	// before is called first with each entry, when set.
	before func()
}

func (*sinkRecorder) Name() string { return "recorder" }

func (s *sinkRecorder) Round(_ context.Context, r *Round) {
	if s.before != nil {
		s.before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds = append(s.rounds, r)
}

func (s *sinkRecorder) Result(_ context.Context, r *Result) {
	if s.before != nil {
		s.before()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = append(s.results, r)
	if last := s.rounds[len(s.rounds)-1]; last.Decision.Number < r.Decision {
		s.entries = append(s.entries, "a result before its decision")
	}
	s.entries = append(s.entries, fmt.Sprint(r.Decision, " ", r.Kind))
}

func (s *sinkRecorder) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.entries)
}

// evicting returns the number of the decision that evicted first.
func (s *sinkRecorder) evicting(t *testing.T) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.rounds {
		if len(r.Decision.Victims) > 0 {
			return r.Decision.Number
		}
	}
	t.Fatal("no decision evicted a pod")
	return 0
}

// hogNode has a pod that takes 2 s to stop, and needs 3 s more until its volumes are gone.
func hogNode() *node {
	n := newNode()
	n.add("hog", 10*gi)
	n.available(500 * mi)
	n.killTakes, n.uncleaned["hog"] = 2*time.Second, true
	return n
}

func TestResultsHaveTheNumberOfTheirDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := hogNode(), &sinkRecorder{}
		c := n.config(t, hard("1Gi"))
		c.Sinks = append(c.Sinks, s)
		run(t, n, c, func(_ *Manager, wait func(time.Duration)) {
			wait(5 * time.Second)
			n.mu.Lock()
			n.uncleaned["hog"] = false
			n.mu.Unlock()
			wait(time.Minute)
		})
		number := s.evicting(t)
		want := []string{fmt.Sprint(number, " KillAccepted"), fmt.Sprint(number, " PodStopped"),
			fmt.Sprint(number, " PodReleased")}
		expect(t, "results", s.seen(), want)
		for i, r := range s.rounds {
			expect(t, "number of a round", r.Decision.Number, uint64(i+1))
		}
		if last := s.results[2]; last.Released.Memory != snapshot.Bytes(10*gi) || !s.results[1].Evicted {
			t.Errorf("released %d bytes, evicted %v", last.Released.Memory, s.results[1].Evicted)
		}
	})
}

// TestSlowAndBrokenSinksCostOnlyTheirOwnWork: a sink that blocks for a minute and one that panics change neither
// decisions, nor kills, nor what other sinks receive.
func TestSlowAndBrokenSinksCostOnlyTheirOwnWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		play := func(others ...Sink) (kills, seen []string, when time.Duration) {
			n, s := hogNode(), &sinkRecorder{}
			c := n.config(t, hard("1Gi"))
			c.Sinks = append(append(c.Sinks, others...), s)
			begin := time.Now()
			run(t, n, c, func(_ *Manager, wait func(time.Duration)) {
				synctest.Wait()
				for len(n.killed()) == 0 {
					wait(time.Millisecond)
					synctest.Wait()
				}
				when = time.Since(begin)
				wait(30 * time.Second)
				kills, seen = n.killed(), s.seen()
			})
			return kills, seen, when
		}
		panics := shown(t, "plimsoll_eviction_sink_failures_total", "panic", "recorder")
		kills, seen, when := play()
		slow := &sinkRecorder{before: func() { <-time.After(time.Minute) }}
		broken := &sinkRecorder{before: func() { panic("broken") }}
		gotKills, gotSeen, gotWhen := play(slow, broken)
		expect(t, "kills", gotKills, kills)
		expect(t, "what another sink receives", gotSeen, seen)
		expect(t, "time of the first kill", gotWhen, when)
		expect(t, "events", len(kills), 1)
		if shown(t, "plimsoll_eviction_sink_failures_total", "panic", "recorder") == panics {
			t.Error("no panic is counted")
		}
		synctest.Wait()
		<-time.After(time.Hour) // until the slow sink has ended
	})
}

func TestFullQueueDropsTheNewestEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proceed := make(chan struct{})
		s := &sinkRecorder{before: func() { <-proceed }}
		all := newSinks(s)
		all.start(t.Context())
		dropped := shown(t, "plimsoll_eviction_sink_failures_total", "full", "recorder")
		for range sinkQueue + 10 {
			all.round(t.Context(), &Round{}, &policy.State{})
			synctest.Wait()
		}
		expect(t, "dropped", shown(t, "plimsoll_eviction_sink_failures_total", "full", "recorder")-dropped, 9)
		close(proceed)
		<-all.close()
		expect(t, "received", len(s.rounds), sinkQueue+1)
	})
}

func TestSinksReceiveResultsOfTheShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := hogNode(), &sinkRecorder{}
		n.killTakes = time.Hour
		c := n.config(t, hard("1Gi"))
		c.Sinks = append(c.Sinks, s)
		run(t, n, c, func(_ *Manager, wait func(time.Duration)) { wait(5 * time.Second) })
		number := s.evicting(t)
		expect(t, "results", s.seen(), []string{fmt.Sprint(number, " KillAccepted"), fmt.Sprint(number, " KillFailed")})
	})
}

// evictionSink needs only rounds that evict.
type evictionSink struct{ sinkRecorder }

func (*evictionSink) NeedsRound(r *Round) bool { return len(r.Decision.Victims) > 0 }

// A sink receives the rounds that it needs, and every result.
func TestSinkFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, evictions := &sinkRecorder{}, &evictionSink{}
		s := newSinks(all, evictions)
		s.start(t.Context())
		quiet, evicting := &Round{}, &Round{}
		evicting.Decision.Victims = make([]policy.Victim, 1)
		for range 3 {
			s.round(t.Context(), quiet, &policy.State{})
			s.round(t.Context(), evicting, &policy.State{})
			s.result(t.Context(), &Result{Kind: PodStopped})
		}
		<-s.close()
		if rounds, results := len(all.rounds), len(all.results); rounds != 6 || results != 3 {
			t.Errorf("the sink without a filter received %d rounds and %d results, not 6 and 3", rounds, results)
		}
		if rounds, results := len(evictions.rounds), len(evictions.results); rounds != 3 || results != 3 {
			t.Errorf("the sink with a filter received %d rounds and %d results, not 3 and 3", rounds, results)
		}
	})
}

// filteredSink needs no round.
type filteredSink struct{ sinkRecorder }

func (*filteredSink) NeedsRound(*Round) bool { return false }

// A sink that gets nothing has no goroutine: most nodes have no plugins. Nothing that was queued is lost.
func TestSinksWithoutEntriesHaveNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle, early := &filteredSink{}, &sinkRecorder{}
		s := newSinks(idle, early)
		s.round(t.Context(), &Round{}, &policy.State{})
		s.start(t.Context())
		synctest.Wait()
		if len(early.rounds) != 1 || s.workers[0].begin == nil || s.workers[1].begin != nil {
			t.Errorf("%d rounds, a goroutine that is not used: %t", len(early.rounds), s.workers[0].begin == nil)
		}
		s.round(t.Context(), &Round{}, &policy.State{})
		<-s.close()
		if len(early.rounds) != 2 || len(idle.rounds) != 0 {
			t.Errorf("%d rounds, %d that are not needed", len(early.rounds), len(idle.rounds))
		}
		s.round(t.Context(), &Round{}, &policy.State{})
	})
}
