package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Config is what the driver works with. All fields without a comment on nil are required.
type Config struct {
	// Options are those at the start.
	Options Options
	// InTree are the plugins of the agent, by name. A remote plugin of the same name is not called (E6).
	InTree map[string]Plugin
	// Remote returns the plugins that are registered now, at most one of each name. RemoteChanged has a token after each
	// change.
	Remote        func() []Remote
	RemoteChanged <-chan struct{}
	// Pods returns the active pods of this node, InFlight the pods that are being evicted and are not released.
	Pods     func() []*v1.Pod
	InFlight func() []eviction.InFlightPod
	// Blocked returns the pods whose eviction the API server did not accept the last time and is being asked for
	// again. It may be nil: then there are none. BlockedChanged must be called after each change.
	Blocked func() []types.UID
	// Records returns the eviction records of pods, soon after ctx is done at the latest. A question to a plugin waits
	// for it, before the time-out of the call begins. nil for none.
	Records func(ctx context.Context, pods []*v1.Pod) map[types.UID]records.Record
	// Wake requests a round of the eviction manager. It is called when there is more to evict than before.
	Wake func()
	// ConditionsChanged is called when the result of Conditions has changed.
	ConditionsChanged func()
	// Recorder records an event on each pod that is given notice. NoticeFiles writes the files of Options.
	// SoftNoticeDirectory; if it is nil, there are none.
	Recorder    record.EventRecorder
	NoticeFiles NoticeFiles
	Clock       clock.WithTicker
}

// Remote is a plugin that is registered.
type Remote struct {
	Name, Socket string
	Plugin       Plugin
	// Registered is when the plugin registered. One that registers again is a new process.
	Registered time.Time
	// Health returns the state of its calls for the page /debug/plugins. It may be nil.
	Health func() debugv1alpha1.PluginHealth
}

// Driver calls the active plugins round by round, has the arbiter settle their answers, and keeps what follows from
// them. It is a sink of the eviction manager, from which plugins in the agent get the last round.
type Driver struct {
	config Config
	clock  agentClock
	// changed has a token after a change of the options, crossed after memory has crossed a threshold, blocked after a
	// change of the blocked pods.
	changed, crossed, blocked chan struct{}
	options                   atomic.Pointer[Options]
	// active is true while any plugin is called; last is the last round of the eviction manager from then on.
	active atomic.Bool
	last   atomic.Pointer[eviction.Round]
	// requests and conditions are published by the loop.
	requests   atomic.Pointer[[]snapshot.Request]
	conditions atomic.Pointer[[]arbiter.Condition]

	// mu guards what the loop changes and the page shows.
	mu        sync.Mutex
	callers   map[string]*caller
	live, dry book
	evicted   map[string]int64
	dropped   map[string]map[string]int64
	refused   map[string][]debugv1alpha1.RefusedCondition
	// notices are in the order of UIDs.
	notices []debugv1alpha1.PluginNotice
	// noticed has the times of the last events about notices, by pod. The loop alone uses it.
	noticed map[types.UID]time.Time
}

// book is the state of the arbiter for the plugins whose answers have an effect, or for those in dry run. Neither
// affects the other.
type book struct {
	state arbiter.State
	// pending are the answers that are not settled yet.
	pending arbiter.Answers
}

// New returns a driver. It calls no plugin before Run.
func New(config Config) (*Driver, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	registerMetrics()
	d := &Driver{
		config: config, clock: newAgentClock(config.Clock),
		changed: make(chan struct{}, 1), crossed: make(chan struct{}, 1), blocked: make(chan struct{}, 1),
		callers: map[string]*caller{}, evicted: map[string]int64{}, dropped: map[string]map[string]int64{},
		refused: map[string][]debugv1alpha1.RefusedCondition{}, noticed: map[types.UID]time.Time{},
	}
	d.options.Store(&config.Options)
	return d, nil
}

func (c *Config) validate() error {
	for name, missing := range map[string]bool{
		"Remote": c.Remote == nil, "RemoteChanged": c.RemoteChanged == nil, "Pods": c.Pods == nil,
		"InFlight": c.InFlight == nil, "Wake": c.Wake == nil, "ConditionsChanged": c.ConditionsChanged == nil,
		"Recorder": c.Recorder == nil, "Clock": c.Clock == nil,
	} {
		if missing {
			return fmt.Errorf("driver of eviction plugins: %s is missing", name)
		}
	}
	if o := &c.Options; o.Period <= 0 || o.CallTimeout <= 0 {
		return errors.New("driver of eviction plugins: period and call time-out must be positive")
	}
	return nil
}

// SetOptions replaces the options. It returns at once. Plugins that are not enabled any more are not called again, and
// what they have requested ends.
func (d *Driver) SetOptions(o Options) {
	d.options.Store(&o)
	plugincalls.Notify(d.changed)
}

// BlockedChanged has the requests settled again, since the pods that Config.Blocked returns have changed. It
// returns at once.
func (d *Driver) BlockedChanged() { plugincalls.Notify(d.blocked) }

func (c *Config) blocked() []types.UID {
	if c.Blocked == nil {
		return nil
	}
	return c.Blocked()
}

// Requests returns what plugins request now. The result must not be modified.
func (d *Driver) Requests() []snapshot.Request {
	if list := d.requests.Load(); list != nil {
		return *list
	}
	return nil
}

// Conditions returns the conditions of the Node that plugins report, by their names without prefix. The result must
// not be modified.
func (d *Driver) Conditions() (list []arbiter.Condition) {
	if all := d.conditions.Load(); all != nil {
		for i := range *all {
			if c := (*all)[i]; !c.Resource {
				list = append(list, c)
			}
		}
	}
	return list
}

// Run calls plugins until ctx is done. It must be called once. It returns when no call is under way any more.
func (d *Driver) Run(ctx context.Context) {
	l := &loop{Driver: d, ctx: ctx, events: make(chan event), ending: map[string]*caller{}}
	l.files.written = make(chan noticesWrite)
	defer l.stop()
	l.refresh() //nolint:contextcheck // calls run in the contexts of their plugins, which end with ctx
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.changed:
			l.refresh() //nolint:contextcheck // as above
		case <-d.config.RemoteChanged:
			l.refresh() //nolint:contextcheck // as above
		case <-d.crossed:
			l.memoryCrossed()
		case <-d.blocked:
			l.settleSoon()
		case w := <-l.files.written:
			l.noticesWritten(w)
		case e := <-l.events:
			l.receive(e)
		case <-l.wait():
		}
		l.act() //nolint:contextcheck // as above
	}
}

// names returns the names of the plugins whose answers go to the same book, in order.
func (d *Driver) names(dryRun bool) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(d.callers)) {
		if d.callers[name].dryRun == dryRun {
			list = append(list, name)
		}
	}
	return list
}

// agentClock returns times on the agent's monotonic clock, as those of snapshots are: the wall time of the start, and
// the monotonic time that has passed since.
type agentClock struct {
	clock       clock.PassiveClock
	start, base time.Time
}

func newAgentClock(c clock.PassiveClock) agentClock {
	start := c.Now()
	return agentClock{clock: c, start: start, base: snapshot.WallTime(start)}
}

func (c *agentClock) now() time.Time { return c.base.Add(c.clock.Now().Sub(c.start)) }
