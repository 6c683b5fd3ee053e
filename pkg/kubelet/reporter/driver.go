package reporter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// Config is what the driver works with. All fields are required, except InTree.
type Config struct {
	// Options are those at the start.
	Options Options
	// InTree are the plugins of the agent, by name. A remote plugin of the same name is not called.
	InTree map[string]Plugin
	// Remote returns the plugins that are registered now, at most one of each name. RemoteChanged has a token after each
	// change.
	Remote        func() []Remote
	RemoteChanged <-chan struct{}
	Clock         clock.WithTicker
}

// Remote is a plugin that is registered.
type Remote struct {
	Name, Socket string
	Plugin       Plugin
	// Registered is when the plugin registered. One that registers again is a new process.
	Registered time.Time
	// Health is for the page /debug/plugins; nil if nothing is known.
	Health func() debugv1alpha1.PluginHealth
}

// Driver polls the active plugins, reads their streams, and has their last answers. It is safe for concurrent use.
type Driver struct {
	config Config
	// optionsChanged has a token after a change of the options, changed after a change of the reports, failed after a
	// failure, from which a grace period may have begun, answersChanged after a change of what a checkpoint has.
	optionsChanged, changed, failed, answersChanged chan struct{}
	options                                         atomic.Pointer[Options]

	mu    sync.Mutex
	store answers.Store
	// reports are those of the version of the store. The slice is never modified.
	reports           []merge.Report
	version, revision uint64
	// restored are the plugins whose served answers are of a checkpoint, in the order of names.
	restored []string
	// changedAt is when the reports changed first since takeServed, zero if they have not.
	changedAt time.Time
}

// New returns a driver. It calls no plugin before Run.
func New(config Config) (*Driver, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	registerMetrics()
	d := &Driver{
		config:         config,
		optionsChanged: make(chan struct{}, 1), changed: make(chan struct{}, 1), failed: make(chan struct{}, 1),
		answersChanged: make(chan struct{}, 1),
	}
	d.options.Store(&config.Options)
	return d, nil
}

func (c *Config) validate() error {
	for _, field := range []struct {
		name    string
		missing bool
	}{
		{"Remote", c.Remote == nil}, {"RemoteChanged", c.RemoteChanged == nil}, {"Clock", c.Clock == nil},
		{"Options.Remote", c.Options.Remote == nil}, {"Options.InTree", c.Options.InTree == nil},
	} {
		if field.missing {
			return fmt.Errorf("driver of reporter plugins: %s is missing", field.name)
		}
	}
	if o := &c.Options; o.Period <= 0 || o.CallTimeout <= 0 || o.StopGracePeriod < 0 {
		return errors.New("driver of reporter plugins: period and call time-out must be positive, " +
			"the stop grace period not negative")
	}
	return nil
}

// SetOptions replaces the options. It returns at once. Plugins that are not enabled any more are stopped.
func (d *Driver) SetOptions(o Options) {
	d.options.Store(&o)
	plugincalls.Notify(d.optionsChanged)
}

// Restore has the answers of a checkpoint served until their plugins return, see answers.Store.Restore. It must be
// called before Run.
func (d *Driver) Restore(list []answers.Answer) {
	if len(list) == 0 {
		return
	}
	leftOut := 0
	d.update(func(s *answers.Store, now time.Time) { leftOut = s.Restore(list, now) })
	klog.Background().Info("Reporter plugins: answers of the checkpoint are served until their plugins return",
		"answers", len(list)-leftOut, "leftOut", leftOut)
}

// Changed returns a channel that receives a value after Reports has changed, or after a plugin has confirmed an answer
// of a checkpoint. Changes that follow each other before the value is read are one value. The channel is for one
// reader.
func (d *Driver) Changed() <-chan struct{} { return d.changed }

// Reports returns the answers that are served now, one of each plugin, in the order of names. The result must not be
// modified.
func (d *Driver) Reports() []merge.Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reports
}

// served are the answers that are served at one time.
type served struct {
	reports []merge.Report
	// since is when the oldest change came since the call before, zero if none came.
	since time.Time
	// restored are the plugins whose answers are of a checkpoint, in the order of names.
	restored []string
}

// takeServed returns what is served now. It is for the merger alone.
func (d *Driver) takeServed() served {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := served{reports: d.reports, since: d.changedAt, restored: d.restored}
	d.changedAt = time.Time{}
	return s
}

// Answers returns what a checkpoint has of the answers that are served now. Their contents must not be modified.
func (d *Driver) Answers() []answers.Answer {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.store.Answers(d.config.Clock.Now())
}

// AnswersChanged returns a channel that receives a value after a change of Answers, except of its times. Changes that
// follow each other before the value is read are one value. The channel is for one reader.
func (d *Driver) AnswersChanged() <-chan struct{} { return d.answersChanged }

// Endpoints returns the states of all endpoints, active or stopped, in the order of names and sockets. Their contents
// must not be modified.
func (d *Driver) Endpoints() []answers.Endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.store.Endpoints()
}

// update changes the store, and the reports if they have changed with it.
func (d *Driver) update(change func(s *answers.Store, now time.Time)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.store, d.config.Clock.Now())
	if v := d.store.Version(); v != d.version {
		d.version, d.reports = v, d.store.Reports()
		if d.changedAt.IsZero() {
			d.changedAt = d.config.Clock.Now()
		}
		plugincalls.Notify(d.changed)
	}
	if restored := d.store.Restored(); !slices.Equal(restored, d.restored) {
		d.restored = restored
		plugincalls.Notify(d.changed)
	}
	if r := d.store.Revision(); r != d.revision {
		d.revision = r
		plugincalls.Notify(d.answersChanged)
	}
}

// Run calls plugins until ctx is done. It must be called once. It returns when no call is under way any more.
func (d *Driver) Run(ctx context.Context) {
	l := &loop{Driver: d, ctx: ctx, callers: map[answers.Run]*caller{}, turns: map[string]*turns{}}
	defer l.stop()
	l.refresh() //nolint:contextcheck // calls run in the contexts of their plugins, which end with ctx
	l.act()     //nolint:contextcheck // as above
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.optionsChanged:
			l.refresh() //nolint:contextcheck // as above
		case <-d.config.RemoteChanged:
			l.refresh() //nolint:contextcheck // as above
		case <-d.failed:
		case <-l.wait():
		}
		l.act() //nolint:contextcheck // as above
	}
}
