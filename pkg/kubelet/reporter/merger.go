package reporter

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

const (
	// settleTime is how long plugins that have no answer in a checkpoint have to register after the start of the agent,
	// until what an earlier run has published for them is removed.
	settleTime = 10 * time.Second
	// unconfirmedTime is how long answers of a checkpoint count as unconfirmed after the start. Until then nothing is
	// removed, not even what other plugins have reported.
	unconfirmedTime = time.Minute
)

const (
	// mergeInterval is the least time between two merges, so that plugins that change all the time cost little.
	mergeInterval = 500 * time.Millisecond
	// mergePause: the pause after a merge is at least this many times its duration, up to maxMergeInterval. Otherwise
	// plugins that report as much as they may and change it all the time would occupy a CPU: a merge of 1 MiB takes a
	// third of a second.
	mergePause       = 4
	maxMergeInterval = 30 * time.Second
)

// Merged is the merge of all reports at one time. It must not be modified.
type Merged struct {
	Result merge.Result
	// Since is when the oldest change of the reports came that no result before has; zero if none came.
	Since time.Time
	// Confirmed is the merge of those reports alone that plugins have given since the start of the agent. It is nil when
	// the result has no others, and the agent did not start just now; a minute after the start at the latest.
	//
	// While it is not nil, reports may be missing in the result, or be older than what the objects have: a checkpoint may
	// be some seconds old when an agent ends. Then what the objects have of the agent stays, except for what the confirmed
	// reports replace.
	Confirmed *merge.Result
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

// Merger merges the reports of a driver each time they change, at most twice in a second and for at most a fifth of the
// time, and passes the results on. It is safe for concurrent use.
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
	plugincalls.Notify(m.optionsChanged)
}

// Last returns the last result; an empty one before the first.
func (m *Merger) Last() Merged {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.merged
}

// Run merges until ctx ends. The first merge is made at once. It must be called once.
func (m *Merger) Run(ctx context.Context) {
	begun := m.config.Clock.Now()
	settle := m.config.Clock.NewTimer(settleTime)
	defer settle.Stop()
	for {
		merging := m.config.Clock.Now()
		m.merge(ctx, merging.Sub(begun))
		took := m.config.Clock.Since(merging)
		pause := m.config.Clock.NewTimer(min(max(mergeInterval, mergePause*took), maxMergeInterval))
		select {
		case <-pause.C():
		case <-ctx.Done():
			pause.Stop()
			return
		}
		select {
		case <-m.config.Driver.Changed():
		case <-m.optionsChanged:
		case <-settle.C():
			if left := unconfirmedTime - m.config.Clock.Since(begun); left > 0 {
				settle.Reset(left)
			}
		case <-ctx.Done():
			return
		}
	}
}

// merge merges the reports and passes the result on, so long after the start. A panic costs this result and no other.
func (m *Merger) merge(ctx context.Context, running time.Duration) {
	defer func() {
		if p := recover(); p != nil {
			klog.FromContext(ctx).Error(nil, "Reporter plugins: merge panicked", "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
		}
	}()
	served, options := m.config.Driver.takeServed(), *m.options.Load()
	merged := Merged{Result: merge.Merge(served.reports, options), Since: served.since}
	switch {
	case len(served.restored) > 0 && running < unconfirmedTime:
		confirmed := merge.Merge(slices.DeleteFunc(slices.Clone(served.reports), func(r merge.Report) bool {
			return slices.Contains(served.restored, r.Plugin)
		}), options)
		merged.Confirmed = &confirmed
	case running < settleTime:
		result := merged.Result
		merged.Confirmed = &result
	}
	countMerge(&merged.Result)
	m.mu.Lock()
	m.merged = merged
	m.mu.Unlock()
	for _, sink := range m.config.Sinks {
		sink(merged)
	}
}
