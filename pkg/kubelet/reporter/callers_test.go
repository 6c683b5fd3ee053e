package reporter

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// R3: a stream that ends is opened again, after 1 s at first, then after twice the time, at most 30 s, each with up to
// a fifth more. A message resets it. Polls continue meanwhile.
func TestR3StreamIsDialledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Bool
		p := polled("poll")
		p.watch = func(_ context.Context, send func([]merge.Content)) error {
			if sends.Load() {
				send(answer("message"))
			}
			return errors.New("broken")
		}
		r := newRig(t, nil, at("/1", p))
		r.start()
		defer r.stop()
		pass(3 * time.Minute)
		expectDelays(t, p.opened(), 1, 2, 4, 8, 16, 30, 30)
		if got := p.polled(); got != 37 {
			t.Errorf("got %d polls in 3 minutes", got)
		}
		r.expect("p=poll")
		before := len(p.opened())
		sends.Store(true)
		pass(40 * time.Second)
		sends.Store(false)
		pass(10 * time.Second)
		delays := p.opened()[before:]
		expectDelays(t, delays, 1, 1, 1)
		if n := len(delays); n < 4 {
			t.Errorf("opened %d times while it sends", n)
		}
	})
}

// expectDelays compares the first times between streams with the least ones, in seconds.
func expectDelays(t *testing.T, times []time.Time, seconds ...time.Duration) {
	t.Helper()
	if len(times) <= len(seconds) {
		t.Fatalf("opened %d times, want more than %d", len(times), len(seconds))
	}
	for i, s := range seconds {
		least := s * time.Second
		if d := times[i+1].Sub(times[i]); d < least || d > least+least/5 {
			t.Errorf("delay %d is %v, want %v to a fifth more", i, d, least)
		}
	}
}

// R3: a stream that was open for 30 s and ends is opened again after 1 s, although it has sent nothing.
func TestR3QuietStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := polled("poll")
		p.watch = func(context.Context, func([]merge.Content)) error {
			time.Sleep(maxRedial)
			return nil
		}
		r := newRig(t, nil, at("/1", p))
		r.start()
		pass(3 * time.Minute)
		for i, opened := range p.opened()[1:] {
			if d := opened.Sub(p.opened()[i]) - maxRedial; d < minRedial || d > minRedial+minRedial/5 {
				t.Errorf("delay %d is %v", i, d)
			}
		}
		r.cancel()
		pass(maxRedial)
		r.stop()
	})
}

// R3: the delays of plugins differ.
func TestR3Jitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugins := map[string]Plugin{}
		for i := range 10 {
			plugins[fmt.Sprint("p", i)] = &scripted{
				watch: func(context.Context, func([]merge.Content)) error { return errors.New("broken") },
			}
		}
		r := newRig(t, plugins)
		r.start()
		defer r.stop()
		pass(2 * time.Second)
		seen := map[time.Time]bool{}
		for _, p := range plugins {
			seen[p.(*scripted).opened()[1]] = true
		}
		if len(seen) < 2 {
			t.Error("all streams are opened again at the same time")
		}
	})
}

// R4: plugins that hang in both calls delay no other plugin. Each has one call under way.
func TestR4HangingPluginDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		honest := &scripted{poll: func(context.Context) ([]merge.Content, error) {
			n++
			return answer(fmt.Sprint(n)), nil
		}}
		r := newRig(t, map[string]Plugin{"honest": honest, "hangs": hanging(), "hangs-too": hanging()})
		r.start()
		defer r.stop()
		r.expect("honest=1")
		pass(5 * time.Second)
		r.expect("honest=2")
		pass(time.Minute)
		r.expect("honest=14")
	})
}

// R4: a plugin that does not return after the call time-out is not called again until it has. Its answer is removed
// after the grace period, and served again afterwards.
func TestR4CallThatNeverEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := polled("a")
		good, n := p.poll, 0
		p.poll = func(ctx context.Context) ([]merge.Content, error) {
			if n++; n == 2 {
				<-release
			}
			return good(ctx)
		}
		r := newRig(t, map[string]Plugin{"p": p})
		r.start()
		defer r.stop()
		pass(10*time.Second + grace - 1)
		r.expect("p=a")
		pass(1)
		r.expect("")
		if got := p.polled(); got != 2 {
			t.Errorf("got %d polls", got)
		}
		close(release)
		pass(5 * time.Second)
		r.expect("p=a")
	})
}

// R4: an answer after the call time-out is none.
func TestR4LateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := polled("late")
		good := p.poll
		p.poll = func(ctx context.Context) ([]merge.Content, error) {
			time.Sleep(6 * time.Second)
			return good(ctx)
		}
		r := newRig(t, map[string]Plugin{"p": p})
		r.start()
		pass(time.Minute)
		r.expect("")
		r.cancel()
		pass(6 * time.Second)
		r.stop()
	})
}

// R4: a failed poll keeps the answer, and so does one that was not made.
func TestR4FailedPollKeepsTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails failure
		r := newRig(t, nil, at("/1", failing("a", &fails)))
		r.start()
		defer r.stop()
		fails.set(errors.New("failed"))
		pass(grace)
		r.expect("p=a")
		fails.set(nil)
		pass(5 * time.Second)
		fails.set(ErrNotCalled)
		pass(time.Hour)
		r.expect("p=a")
	})
}

// R5: the answer to a poll that began before a message came does not replace the message.
func TestR5PollBegunBeforeAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := make(chan string)
		p := stream(texts)
		p.poll = func(ctx context.Context) ([]merge.Content, error) {
			time.Sleep(2 * time.Second)
			return answer("poll"), nil
		}
		r := newRig(t, nil, at("/1", p))
		r.start()
		defer r.stop()
		pass(time.Second)
		texts <- "message"
		pass(2 * time.Second)
		r.expect("p=message")
		pass(3*time.Second + 1)
		r.expect("p=message")
		pass(time.Second)
		r.expect("p=poll")
	})
}

// A plugin that implements one of the two calls is complete. The other one is not called again if it is the stream.
func TestOneOfTheTwoCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := make(chan string, 1)
		texts <- "a"
		polls, streams := polled("b"), stream(texts)
		r := newRig(t, map[string]Plugin{"polls": polls, "streams": streams, "none": &scripted{}})
		r.start()
		defer r.stop()
		pass(time.Hour)
		r.expect("polls=b streams=a")
		if n := len(polls.opened()); n != 1 {
			t.Errorf("the stream was opened %d times", n)
		}
	})
}
