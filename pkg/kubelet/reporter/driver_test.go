package reporter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

const grace = 30 * time.Second

// scripted is a plugin whose calls are functions; nil ones are not implemented.
type scripted struct {
	poll  func(ctx context.Context) ([]merge.Content, error)
	watch func(ctx context.Context, send func([]merge.Content)) error

	mu      sync.Mutex
	polls   int
	streams []time.Time
	// open is how many streams are open, most how many there were at the same time.
	open, most int
}

func (p *scripted) GetReportContent(ctx context.Context) ([]merge.Content, error) {
	p.mu.Lock()
	p.polls++
	p.mu.Unlock()
	if p.poll == nil {
		return nil, ErrUnimplemented
	}
	return p.poll(ctx)
}

func (p *scripted) ListAndWatch(ctx context.Context, send func([]merge.Content)) error {
	p.mu.Lock()
	p.streams = append(p.streams, time.Now())
	p.open++
	p.most = max(p.most, p.open)
	p.mu.Unlock()
	defer func() { p.mu.Lock(); defer p.mu.Unlock(); p.open-- }()
	if p.watch == nil {
		return ErrUnimplemented
	}
	return p.watch(ctx, send)
}

func (p *scripted) polled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.polls
}

func (p *scripted) opened() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.streams)
}

// concurrent returns how many streams are open, and how many there were at most at the same time.
func (p *scripted) concurrent() (open, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open, p.most
}

// polled returns a plugin that answers polls with a text.
func polled(text string) *scripted {
	return &scripted{poll: func(context.Context) ([]merge.Content, error) { return answer(text), nil }}
}

// failure is what the polls of a plugin return, nil for an answer.
type failure struct{ err atomic.Pointer[error] }

func (f *failure) set(err error) { f.err.Store(&err) }

// failing returns a plugin whose polls return the failure if there is one, else a text.
func failing(text string, f *failure) *scripted {
	return &scripted{poll: func(context.Context) ([]merge.Content, error) {
		if err := f.err.Load(); err != nil && *err != nil {
			return nil, *err
		}
		return answer(text), nil
	}}
}

// hanging returns a plugin whose calls end with their contexts.
func hanging() *scripted {
	return &scripted{
		poll:  func(ctx context.Context) ([]merge.Content, error) { <-ctx.Done(); return nil, ctx.Err() },
		watch: func(ctx context.Context, _ func([]merge.Content)) error { <-ctx.Done(); return ctx.Err() },
	}
}

// stream returns a plugin that sends each text of a channel, and whose stream ends when a text is empty.
func stream(texts <-chan string) *scripted {
	return &scripted{watch: func(ctx context.Context, send func([]merge.Content)) error {
		for {
			select {
			case text := <-texts:
				if text == "" {
					return nil
				}
				send(answer(text))
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}}
}

func answer(text string) []merge.Content {
	return []merge.Content{{
		Kind:   schema.GroupVersionKind{Version: "v1", Kind: "Node"},
		Fields: []merge.ReportField{{Part: merge.Metadata, Name: "Labels", Value: []byte(text)}},
	}}
}

// rig is a driver in a bubble.
type rig struct {
	*Driver
	t       *testing.T
	options Options
	changed chan struct{}
	cancel  context.CancelFunc
	ended   chan struct{}

	mu     sync.Mutex
	remote []Remote
}

func all(string) bool { return true }

func newRig(t *testing.T, inTree map[string]Plugin, remote ...Remote) *rig {
	r := &rig{
		t: t, changed: make(chan struct{}, 1), ended: make(chan struct{}), remote: remote,
		options: Options{
			Remote: all, InTree: all, Period: 5 * time.Second, CallTimeout: 5 * time.Second, StopGracePeriod: grace,
		},
	}
	d, err := New(Config{
		Options: r.options, InTree: inTree, RemoteChanged: r.changed, Clock: clock.RealClock{},
		Remote: func() []Remote { r.mu.Lock(); defer r.mu.Unlock(); return slices.Clone(r.remote) },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Driver = d
	return r
}

// restored is a driver that begins with answers of a checkpoint.
func (r *rig) restored(list ...answers.Answer) *rig {
	r.Restore(list)
	return r
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel = cancel
	go func() { defer close(r.ended); r.Run(ctx) }()
	synctest.Wait()
}

// stop ends the driver and fails the test unless it ends at once.
func (r *rig) stop() {
	r.cancel()
	synctest.Wait()
	select {
	case <-r.ended:
	default:
		r.t.Error("Run has not returned")
	}
}

func (r *rig) register(list ...Remote) {
	r.mu.Lock()
	r.remote = list
	r.mu.Unlock()
	notify(r.changed)
	synctest.Wait()
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func text(reports []merge.Report) string {
	list := make([]string, len(reports))
	for i, r := range reports {
		list[i] = r.Plugin + "=" + string(r.Contents[0].Fields[0].Value)
	}
	return strings.Join(list, " ")
}

func (r *rig) expect(want string) {
	r.t.Helper()
	if got := text(r.Reports()); got != want {
		r.t.Errorf("got %q, want %q", got, want)
	}
}

// bubble runs a test in a bubble, which fails if a goroutine is left at its end.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

func at(socket string, p Plugin) Remote { return Remote{Name: "p", Socket: socket, Plugin: p} }

// R1, as far as the driver is concerned: an answer beyond the limits is refused whole and costs no other plugin's. The
// last good one stays for its grace period.
func TestR1RefusedAnswerCostsItsPluginOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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

// R2: without a grace period, the third failure removes the answer at once.
func TestR2WithoutAGracePeriod(t *testing.T) {
	bubble(t, func(t *testing.T) {
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

// R3: a stream that ends is opened again, after 1 s at first, then after twice the time, at most 30 s, each with up to
// a fifth more. A message begins it anew. Polls go on meanwhile.
func TestR3StreamIsDialledAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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

// R7: deregistration, registration anew and takeover may come in any order and number. Each run has its calls ended
// once, and the last endpoint alone is called.
func TestR7StoppedOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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

// A plugin that implements one of the two calls is complete. The other one is not called again if it is the stream.
func TestOneOfTheTwoCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
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

// A panic of a plugin in the agent is a failure of its call.
func TestPanic(t *testing.T) {
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
	bubble(t, func(t *testing.T) {
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
