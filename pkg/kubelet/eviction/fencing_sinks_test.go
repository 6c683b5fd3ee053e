package eviction

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// entryTimes is a sink that records what it receives, and when.
type entryTimes struct {
	mu    sync.Mutex
	begin time.Time
	list  []string
}

func (*entryTimes) Name() string { return "times" }

func (s *entryTimes) Round(_ context.Context, r *Round) {
	s.add(fmt.Sprint("round ", r.Decision.Number))
}

func (s *entryTimes) Result(_ context.Context, r *Result) { s.add(string(r.Kind)) }

func (s *entryTimes) add(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, fmt.Sprintf("%s at %v", what, time.Since(s.begin).Round(time.Millisecond)))
}

// restart forgets what was received. Times count from now on.
func (s *entryTimes) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin, s.list = time.Now(), nil
}

func (s *entryTimes) entries() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

// carrying is a node whose manager carries out decisions, each of which has one victim.
type carrying struct {
	// answerTakes is the time to the answer of a kill request, fenceTakes that to set a fence, apart that between two
	// decisions.
	answerTakes, fenceTakes, apart time.Duration
	answer                         podkill.Answer
}

// play returns what a sink has received until some time after the last of the decisions.
func (c carrying) play(t *testing.T, until time.Duration, victims ...*policy.Victim) (got []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sink, n := &entryTimes{}, newNode()
		for _, v := range victims {
			if n.pods[v.Pod.Name] == nil {
				n.add(v.Pod.Name, gi)
			}
		}
		n.available(2 * gi)
		n.killTakes = time.Hour
		config := n.config(t, hard("1Gi"))
		config.Options, config.Fencer = fencesOn(), slowFencer{&fakeFencer{n: n}, c.fenceTakes}
		config.Sinks = append(config.Sinks, sink)
		kill := config.Kill
		config.Kill = func(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
			<-time.After(c.answerTakes)
			if c.answer == podkill.Refused {
				return podkill.Refused, nil
			}
			return kill(ctx, r)
		}
		run(t, n, config, func(m *Manager, wait func(time.Duration)) {
			wait(time.Second)
			sink.restart()
			for i, v := range victims {
				if i > 0 {
					wait(c.apart)
				}
				r := new(*m.last.Load())
				r.Decision.Number, r.Decision.Victims = uint64(100+i), []policy.Victim{*v}
				m.carryOut(t.Context(), r, &policy.State{})
			}
			wait(until)
			got = sink.entries()
		})
	})
	return got
}

// slowFencer takes some time to set a fence.
type slowFencer struct {
	*fakeFencer
	takes time.Duration
}

func (f slowFencer) Fence(pod *v1.Pod, l policy.Fence) (Fence, error) {
	<-time.After(f.takes)
	return f.fakeFencer.Fence(pod, l)
}

// victimNamed is a pod to be fenced.
func victimNamed(name string) *policy.Victim {
	v := hogVictim()
	v.Cause.Signal = snapshot.MemoryAvailable
	v.Pod = &snapshot.Pod{Facts: &snapshot.Facts{UID: types.UID(name), Name: name, Namespace: "ns"}}
	return v
}

func unfenced(v *policy.Victim) *policy.Victim {
	v.Fence = nil
	return v
}

// What sinks do takes CPUs from the fences: they receive a round, and its results after it, when its fences are set.
func TestSinksWaitForFences(t *testing.T) {
	const ms = time.Millisecond
	hog := victimNamed("hog")
	tests := map[string]struct {
		node    carrying
		victims []*policy.Victim
		want    []string
	}{
		"that take no time": {
			node:    carrying{answer: podkill.Begun},
			victims: []*policy.Victim{hog},
			want:    []string{"round 100 at 0s", "KillAccepted at 0s", "PodFenced at 0s"},
		},
		"that take some time": {
			node:    carrying{answer: podkill.Begun, answerTakes: 5 * ms, fenceTakes: 20 * ms},
			victims: []*policy.Victim{hog},
			want:    []string{"round 100 at 25ms", "KillAccepted at 25ms", "PodFenced at 25ms"},
		},
		"no longer than fences take": {
			node:    carrying{answer: podkill.Begun, answerTakes: 80 * ms},
			victims: []*policy.Victim{hog},
			want:    []string{"round 100 at 50ms", "KillAccepted at 80ms", "PodFenced at 80ms"},
		},
		"not if the request is refused": {
			node:    carrying{answer: podkill.Refused, answerTakes: 5 * ms},
			victims: []*policy.Victim{hog},
			want:    []string{"round 100 at 5ms", "KillRefused at 5ms"},
		},
		"not if there is none": {
			node:    carrying{answer: podkill.Begun, answerTakes: 5 * ms},
			victims: []*policy.Victim{unfenced(victimNamed("hog"))},
			want:    []string{"round 100 at 0s", "KillAccepted at 5ms"},
		},
		"of pods that are being stopped": {
			node:    carrying{answer: podkill.Begun, fenceTakes: 20 * ms, apart: 100 * ms},
			victims: []*policy.Victim{unfenced(victimNamed("hog")), hog},
			want: []string{"round 100 at 0s", "KillAccepted at 0s", "round 101 at 120ms", "KillAccepted at 120ms",
				"PodFenced at 120ms"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := test.node.play(t, 90*ms, test.victims...); !slices.Equal(got, test.want) {
				t.Errorf("the sink receives %q, want %q", got, test.want)
			}
		})
	}
}

// The fences of one round take long, and there is another round before they are set, again and again. No round waits
// longer for that.
func TestSinksDoNotWaitForFencesOfLaterRounds(t *testing.T) {
	var victims []*policy.Victim
	for i := range 50 {
		victims = append(victims, victimNamed(fmt.Sprint("hog-", i)))
	}
	node := carrying{answer: podkill.Begun, answerTakes: 60 * time.Millisecond, apart: 40 * time.Millisecond}
	rounds := 0
	for _, entry := range node.play(t, time.Second, victims...) {
		what, at, _ := strings.Cut(entry, " at ")
		if !strings.HasPrefix(what, "round") {
			continue
		}
		when, err := time.ParseDuration(at)
		if want := time.Duration(rounds)*node.apart + sinksHeld; err != nil || when != want {
			t.Errorf("%s, want it at %v", entry, want)
		}
		rounds++
	}
	if rounds != len(victims) {
		t.Errorf("the sink receives %d rounds of %d", rounds, len(victims))
	}
}

// So many entries come while they are held that they would not fit into the queue of a sink.
func TestHeldEntriesAreNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &entryTimes{}
		s := newSinks(sink)
		s.start(t.Context())
		h := s.hold()
		for range 2 * sinkQueue {
			s.result(t.Context(), &Result{})
			synctest.Wait()
		}
		s.release(t.Context(), h)
		<-s.close()
		if n := len(sink.entries()); n != 2*sinkQueue {
			t.Errorf("the sink receives %d entries of %d", n, 2*sinkQueue)
		}
	})
}
