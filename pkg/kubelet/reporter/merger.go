package reporter

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// mergeInterval is the least time between two merges, so that plugins that change all the time cost little.
const mergeInterval = 500 * time.Millisecond

// Merged is the merge of all reports at one time. It must not be modified.
type Merged struct {
	Result merge.Result
	// Since is when the oldest change of the reports came that no result before has; zero if none came.
	Since time.Time
	// Restored are the plugins whose reports are those of an earlier run of the agent, in the order of names.
	Restored []string
}

// MergerConfig is what a Merger works with.
type MergerConfig struct {
	Driver *Driver
	// Options are those at the start.
	Options merge.Options
	// Sinks get each result, in their order. They must return at once.
	Sinks []func(Merged)
	Clock clock.WithTicker
}

// Merger merges the reports of a driver each time they change, at most twice in a second, and passes the results on.
// It is safe for concurrent use.
type Merger struct {
	config  MergerConfig
	options atomic.Pointer[merge.Options]
	// optionsChanged has a token after a change of the options.
	optionsChanged chan struct{}

	mu     sync.Mutex
	merged Merged
}

// NewMerger returns a merger, which does nothing before Run.
func NewMerger(config MergerConfig) *Merger {
	m := &Merger{config: config, optionsChanged: make(chan struct{}, 1)}
	m.options.Store(&config.Options)
	return m
}

// SetOptions replaces the options. It returns at once, and may be called at any time.
func (m *Merger) SetOptions(o merge.Options) {
	m.options.Store(&o)
	notify(m.optionsChanged)
}

// Last returns the last result; an empty one before the first.
func (m *Merger) Last() Merged {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.merged
}

// Run merges until ctx ends. The first merge is made at once. It must be called once.
func (m *Merger) Run(ctx context.Context) {
	for {
		m.merge(ctx)
		pause := m.config.Clock.NewTimer(mergeInterval)
		select {
		case <-pause.C():
		case <-ctx.Done():
			pause.Stop()
			return
		}
		select {
		case <-m.config.Driver.Changed():
		case <-m.optionsChanged:
		case <-ctx.Done():
			return
		}
	}
}

// merge merges the reports and passes the result on. A panic costs this result and no other.
func (m *Merger) merge(ctx context.Context) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(nil, "Reporter plugins: merge panicked", "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
		}
	}()
	served := m.config.Driver.takeServed()
	merged := Merged{
		Result: merge.Merge(served.reports, *m.options.Load()), Since: served.since, Restored: served.restored,
	}
	countMerge(&merged.Result)
	m.mu.Lock()
	m.merged = merged
	m.mu.Unlock()
	for _, sink := range m.config.Sinks {
		sink(merged)
	}
}
