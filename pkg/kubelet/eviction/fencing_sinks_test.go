package eviction

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// entryTimes is a sink that records what it receives, and when.
type entryTimes struct{ list []string }

func (*entryTimes) Name() string { return "times" }

func (s *entryTimes) Round(_ context.Context, r *Round) {
	s.add(fmt.Sprint("round ", r.Decision.Number))
}

func (s *entryTimes) Result(_ context.Context, r *Result) { s.add(string(r.Kind)) }

func (s *entryTimes) add(what string) {
	s.list = append(s.list, fmt.Sprintf("%s at %v", what, time.Since(synctestBegin).Round(time.Millisecond)))
}

// synctestBegin is the time at which bubbles begin.
var synctestBegin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// What sinks do takes CPUs from the fences: they receive a round, and its results after it, when its fences are set.
func TestSinksWaitForFences(t *testing.T) {
	tests := map[string]struct {
		answerTakes, fenceTakes time.Duration
		answer                  podkill.Answer
		unfenced                bool
		want                    []string
	}{
		"at once": {
			answer: podkill.Begun, want: []string{"round 7 at 1s", "KillAccepted at 1s", "PodFenced at 1s"},
		},
		"that take some time": {
			answer: podkill.Begun, answerTakes: 5 * time.Millisecond, fenceTakes: 20 * time.Millisecond,
			want: []string{"round 7 at 1.025s", "KillAccepted at 1.025s", "PodFenced at 1.025s"},
		},
		"no longer than fences take": {
			answer: podkill.Begun, answerTakes: 2 * time.Second,
			want: []string{"round 7 at 1.05s", "KillAccepted at 3s", "PodFenced at 3s"},
		},
		"not if the request is refused": {
			answer: podkill.Refused, answerTakes: 5 * time.Millisecond,
			want: []string{"round 7 at 1.005s", "KillRefused at 1.005s"},
		},
		"not if there is none": {
			answer: podkill.Begun, answerTakes: 5 * time.Millisecond, unfenced: true,
			want: []string{"round 7 at 1s", "KillAccepted at 1.005s"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &entryTimes{}
				n := newNode()
				n.add("hog", gi)
				n.available(2 * gi)
				n.killTakes = time.Hour
				config := n.config(t, hard("1Gi"))
				config.Fencer = slowFencer{&fakeFencer{n: n}, test.fenceTakes}
				config.Sinks = append(config.Sinks, sink)
				kill := config.Kill
				config.Kill = func(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
					<-time.After(test.answerTakes)
					if test.answer == podkill.Refused {
						return podkill.Refused, nil
					}
					return kill(ctx, r)
				}
				run(t, n, config, func(m *Manager, wait func(time.Duration)) {
					wait(time.Second)
					r := new(*m.last.Load())
					r.Decision.Number = 7
					r.Decision.Victims = []policy.Victim{*hogVictim()}
					if test.unfenced {
						r.Decision.Victims[0].Fence = nil
					}
					sink.list = nil
					m.carryOut(t.Context(), r, &policy.State{})
					wait(2500 * time.Millisecond)
					got := sink.list
					if i := slices.IndexFunc(got, func(s string) bool { return s[:5] == "round" }); i > 0 {
						t.Errorf("a result comes before the round: %q", got)
					}
					if len(got) > len(test.want) {
						got = got[:len(test.want)]
					}
					if !slices.Equal(got, test.want) {
						t.Errorf("the sink receives %q, want %q", got, test.want)
					}
				})
			})
		})
	}
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
