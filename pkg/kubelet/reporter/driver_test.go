package reporter

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// R1, as far as the driver is concerned: an answer beyond the limits is refused whole and costs no other plugin's. The
// last good one stays for its grace period.
func TestR1RefusedAnswerCostsItsPluginOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var large atomic.Bool
		bad := polled("good")
		good := bad.poll
		bad.poll = func(ctx context.Context) ([]merge.Content, error) {
			if large.Load() {
				return answer(strings.Repeat("x", merge.MaxValueBytes+1)), nil
			}
			return good(ctx)
		}
		r := newRig(t, map[string]Plugin{"bad": bad, "p": polled("a")})
		r.start()
		defer r.stop()
		r.expect("bad=good p=a")
		large.Store(true)
		pass(grace)
		r.expect("bad=good p=a")
		if refused := r.Endpoints()[0].Refusals[0]; !strings.Contains(refused, "262145 bytes: at most 262144") {
			t.Errorf("the reason is %q", refused)
		}
		pass(5 * time.Second)
		r.expect("p=a")
		large.Store(false)
		pass(5 * time.Second)
		r.expect("bad=good p=a")
	})
}

// R2: the fields of a plugin that has gone are served for the grace period.
func TestR2VanishedPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil, at("/1", polled("a")))
		r.start()
		defer r.stop()
		pass(time.Hour)
		<-r.Changed()
		r.register()
		pass(grace - 1)
		r.expect("p=a")
		pass(1)
		r.expect("")
		select {
		case <-r.Changed():
		default:
			t.Error("the change is not reported")
		}
	})
}

// R2: a plugin that has died without being deregistered is noticed by the polls.
func TestR2DeadPlugin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails failure
		texts := make(chan string, 1)
		p := failing("a", &fails)
		p.watch = stream(texts).watch
		r := newRig(t, nil, at("/1", p))
		r.start()
		defer r.stop()
		pass(time.Second)
		fails.set(ErrUnreachable)
		texts <- ""
		pass(4*time.Second + grace - 1)
		r.expect("p=a")
		pass(1)
		r.expect("")
	})
}

// R2: a plugin whose polls always fail is polled seldom. Its answer is that of its stream, and lasts for the grace
// period after the stream has ended.
func TestR2DeadPluginWhosePollsAreSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := make(chan string, 1)
		p := stream(texts)
		p.poll = func(context.Context) ([]merge.Content, error) { return nil, ErrSuspended }
		r := newRig(t, nil, at("/1", p))
		r.start()
		defer r.stop()
		texts <- "a"
		pass(time.Hour)
		r.expect("p=a")
		texts <- ""
		pass(grace)
		r.expect("p=a")
		pass(5 * time.Second)
		r.expect("")
	})
}

// R2: without a grace period, the third failure removes the answer at once.
func TestR2WithoutAGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails failure
		r := newRig(t, nil, at("/1", failing("a", &fails)))
		r.options.Period, r.options.StopGracePeriod = time.Minute, 0
		r.SetOptions(r.options)
		r.start()
		defer r.stop()
		fails.set(ErrUnreachable)
		pass(3*time.Minute - 1)
		r.expect("p=a")
		pass(1)
		r.expect("")
	})
}

// R7: deregistration, registration anew and takeover may come in any order and number. Each run has its calls ended
// once, and the last endpoint alone is called.
func TestR7StoppedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second, third := hanging(), hanging(), polled("third")
		r := newRig(t, nil, at("/1", first))
		r.start()
		defer r.stop()
		for range 3 {
			r.register()
			r.register(at("/1", first))
			r.register(at("/2", second))
			r.register(at("/2", second))
			anew := at("/2", third)
			anew.Registered = time.Now()
			r.register(anew)
			r.register(at("/1", first))
		}
		anew := at("/2", third)
		anew.Registered = time.Now()
		r.register(anew)
		r.expect("p=third")
		for i, p := range []*scripted{first, second} {
			if open, most := p.concurrent(); open != 0 || most != 1 {
				t.Errorf("plugin %d: %d streams are open, there were at most %d", i, open, most)
			}
		}
		before := first.polled() + second.polled()
		pass(2 * grace)
		r.expect("p=third")
		if got := first.polled() + second.polled(); got != before {
			t.Errorf("stopped plugins were polled %d times", got-before)
		}
	})
}

// R8: reports are values. Those that were returned do not change, while plugins send and others read.
func TestR8ReportsDoNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugins := map[string]Plugin{}
		for i := range 4 {
			plugins[fmt.Sprint("p", i)] = &scripted{watch: func(ctx context.Context, send func([]merge.Content)) error {
				for n := range 500 {
					send(answer(fmt.Sprint(n)))
					time.Sleep(time.Microsecond)
				}
				<-ctx.Done()
				return nil
			}}
		}
		r := newRig(t, plugins)
		var readers sync.WaitGroup
		stop := make(chan struct{})
		for range 4 {
			readers.Go(func() {
				for {
					reports := r.Reports()
					before := text(reports)
					_ = r.Endpoints()
					if after := text(reports); before != after {
						t.Errorf("got %q, then %q", before, after)
					}
					select {
					case <-stop:
						return
					case <-time.After(time.Microsecond):
					}
				}
			})
		}
		r.start()
		pass(time.Millisecond)
		close(stop)
		readers.Wait()
		r.expect("p0=499 p1=499 p2=499 p3=499")
		r.stop()
	})
}

// A panic of a plugin in the agent is a failure of its call.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &scripted{
			poll:  func(context.Context) ([]merge.Content, error) { panic("poll") },
			watch: func(context.Context, func([]merge.Content)) error { panic("stream") },
		}
		r := newRig(t, map[string]Plugin{"p": p, "q": polled("a")})
		r.start()
		defer r.stop()
		pass(10 * time.Second)
		r.expect("q=a")
		if p.polled() != 3 || len(p.opened()) < 3 {
			t.Errorf("got %d polls and %d streams", p.polled(), len(p.opened()))
		}
	})
}

// A plugin in the agent that is disabled and enabled during a call has one call at a time.
func TestDisabledDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := &scripted{watch: func(_ context.Context, send func([]merge.Content)) error {
			<-release
			send(answer("late"))
			return nil
		}}
		r := newRig(t, map[string]Plugin{"p": p})
		r.start()
		defer r.stop()
		none := r.options
		none.InTree = func(string) bool { return false }
		for range 3 {
			r.SetOptions(none)
			pass(time.Second)
			r.SetOptions(r.options)
			pass(time.Second)
		}
		if _, most := p.concurrent(); most != 1 || len(p.opened()) != 1 {
			t.Errorf("%d streams at the same time, %d in all", most, len(p.opened()))
		}
		release <- struct{}{}
		pass(time.Second)
		r.expect("")
		close(release)
		pass(2 * time.Second)
		r.expect("p=late")
		r.SetOptions(none)
		pass(grace)
		r.expect("")
	})
}

// A plugin in the agent has precedence over one behind a socket of the same name, enabled or not.
func TestNameOfAPluginInTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := polled("foreign")
		r := newRig(t, map[string]Plugin{"p": polled("ours")}, at("/1", foreign))
		r.start()
		defer r.stop()
		r.expect("p=ours")
		none := r.options
		none.InTree = func(string) bool { return false }
		r.SetOptions(none)
		pass(time.Hour)
		r.expect("")
		if n := foreign.polled(); n != 0 {
			t.Errorf("the plugin behind the socket was polled %d times", n)
		}
	})
}

// A new period holds at once.
func TestPeriodChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := polled("a")
		r := newRig(t, map[string]Plugin{"p": p})
		r.start()
		defer r.stop()
		slow := r.options
		slow.Period = time.Minute
		r.SetOptions(slow)
		pass(59 * time.Second)
		if n := p.polled(); n != 1 {
			t.Errorf("got %d polls", n)
		}
		r.SetOptions(r.options)
		pass(5 * time.Second)
		if n := p.polled(); n != 3 {
			t.Errorf("got %d polls", n)
		}
	})
}

// A driver without plugins sleeps, and a configuration that is not complete is refused.
func TestNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.start()
		pass(time.Hour)
		r.expect("")
		r.stop()
		if _, err := New(Config{}); err == nil || !strings.Contains(err.Error(), "Remote is missing") {
			t.Errorf("got %v", err)
		}
		config := r.config
		config.Options.Period = 0
		if _, err := New(config); err == nil {
			t.Error("a period of 0 is accepted")
		}
	})
}
