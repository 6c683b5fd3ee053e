package pressure

import (
	"context"
	"reflect"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// Name is the name of the plugin and of its sink.
const Name = "pressure"

const (
	// maxAgePeriods is how many monitoring periods old an observation may be that is reported.
	maxAgePeriods = 3
	// minMaxAge is how old it may be in any case: a round that waits for the container runtime takes some seconds.
	minMaxAge = 30 * time.Second
)

// Settings may change while the plugin is in use. A change takes effect with the next round or poll.
type Settings struct {
	// MonitoringPeriod is that of the eviction manager. Observations that are older than three periods, and than 30 s, are
	// not reported.
	MonitoringPeriod time.Duration
	// NodeLabels: levels are also reported as labels of the Node.
	NodeLabels bool
}

func (s Settings) maxAge() time.Duration { return max(maxAgePeriods*s.MonitoringPeriod, minMaxAge) }

// Plugin implements reporter.Plugin and eviction.Sink. All methods may be called at any time, from any goroutine.
type Plugin struct {
	clock    clock.Clock
	settings func() Settings

	mu      sync.Mutex
	tracker tracker
	// observed is closed and replaced with each outlook.
	observed chan struct{}
}

var (
	_ reporter.Plugin = (*Plugin)(nil)
	_ eviction.Sink   = (*Plugin)(nil)
)

// New returns the plugin. It must be a sink of the eviction manager. Function settings is called for each round and
// each answer; it must return at once and may be called from any goroutine.
func New(c clock.Clock, settings func() Settings) *Plugin {
	return &Plugin{clock: c, settings: settings, observed: make(chan struct{})}
}

// Name implements eviction.Sink.
func (p *Plugin) Name() string { return Name }

// NeedsRound reports whether a round has an outlook. The eviction manager does not pass on other rounds.
func (p *Plugin) NeedsRound(r *eviction.Round) bool { return r.Decision.Outlook != nil }

// Round implements eviction.Sink.
func (p *Plugin) Round(_ context.Context, r *eviction.Round) {
	maxAge := p.settings().maxAge()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tracker.observe(r.Decision.Outlook, r.Snapshot.Taken, p.clock.Now(), maxAge)
	close(p.observed)
	p.observed = make(chan struct{})
}

// Result implements eviction.Sink.
func (p *Plugin) Result(context.Context, *eviction.Result) {}

// GetReportContent implements reporter.Plugin.
func (p *Plugin) GetReportContent(context.Context) ([]merge.Content, error) {
	a := p.answer()
	if a.awaited {
		return nil, errNotObserved
	}
	return a.contents, a.err
}

// ListAndWatch implements reporter.Plugin. It sends what is reported at once, and then whenever it changes.
func (p *Plugin) ListAndWatch(ctx context.Context, send func([]merge.Content)) error {
	a := p.answer()
	for a.awaited {
		if err := p.wait(ctx, &a); err != nil {
			return err
		}
		a = p.answer()
	}
	for {
		if a.err != nil {
			return a.err
		}
		send(a.contents)
		sent := a.contents
		for reflect.DeepEqual(a.contents, sent) && a.err == nil {
			if err := p.wait(ctx, &a); err != nil {
				return err
			}
			a = p.answer()
		}
	}
}

// wait waits until the answer may be another one.
func (p *Plugin) wait(ctx context.Context, a *answer) error {
	var due <-chan time.Time
	if a.due > 0 {
		timer := p.clock.NewTimer(a.due)
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-a.observed:
	case <-due:
	}
	return nil
}

// answer is what is reported at a time.
type answer struct {
	contents []merge.Content
	err      error
	// awaited: there is no answer yet, see Restore.
	awaited bool
	// due is the time after which the answer may be another one, 0 for never. It may be another one as soon as observed is
	// closed.
	due      time.Duration
	observed <-chan struct{}
}

func (p *Plugin) answer() (a answer) {
	settings := p.settings()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	p.tracker.advance(now, settings.maxAge())
	a.contents, a.err = p.tracker.contents(settings.NodeLabels)
	a.observed = p.observed
	if until, awaited := p.tracker.awaited(now, settings.maxAge()); awaited {
		a.awaited, a.due = true, until.Sub(now)
		return a
	}
	if due := p.tracker.due(now, settings.maxAge()); !due.IsZero() {
		a.due = due.Sub(now)
	}
	return a
}
