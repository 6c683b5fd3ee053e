package reporter

import (
	"context"
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

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
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
	plugincalls.Notify(r.changed)
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

func at(socket string, p Plugin) Remote { return Remote{Name: "p", Socket: socket, Plugin: p} }
