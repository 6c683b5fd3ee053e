package pressure

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// errNotObserved is returned instead of an answer after Restore, until there is an outlook.
var errNotObserved = fmt.Errorf("%w: %w", reporter.ErrNotCalled,
	errors.New("no signal was observed since the start of the agent"))

// Restore takes over the answer of an earlier run of the agent. Growth is measured anew after a start, so that the
// first outlook is often better than the last one of the earlier run: a level that it reported gets better after it has
// been better for a minute, as ever. Until the first outlook there is no answer, for as long as an observation of the
// earlier run might be reported: the answer without signals would replace that of the earlier run. What is no answer of
// this plugin changes nothing. It must be called before the plugin is called.
func (p *Plugin) Restore(contents []merge.Content) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range entriesOf(contents) {
		sig, known := snapshot.ParseSignal(e.Signal)
		if step := slices.Index(levelSteps, e.Level); known && step >= 0 {
			p.tracker.restored[sig] = gauge{set: true, step: step}
			p.tracker.restoredAt = p.clock.Now()
		}
	}
}

// entriesOf returns what an answer reports of signals.
func entriesOf(contents []merge.Content) (list []entry) {
	for i := range contents {
		for _, field := range contents[i].Fields {
			var annotations map[string]string
			if contents[i].Kind != merge.NodeKind || field.Part != merge.Metadata || field.Name != annotationsField ||
				json.Unmarshal(field.Value, &annotations) != nil ||
				json.Unmarshal([]byte(annotations[SignalsAnnotation]), &list) != nil {
				continue
			}
			return list
		}
	}
	return nil
}

// awaited reports whether the first outlook since the start is still to come, and when that does not count any more.
func (t *tracker) awaited(now time.Time, maxAge time.Duration) (until time.Time, awaited bool) {
	until = t.restoredAt.Add(maxAge)
	return until, !t.restoredAt.IsZero() && !t.observed && now.Before(until)
}

// takeRestored has the signals that are observed for the first time begin with the levels of the earlier run.
func (t *tracker) takeRestored(now time.Time, maxAge time.Duration) {
	for sig := range t.signals {
		s := &t.signals[sig]
		if s.leveled.IsZero() {
			continue
		}
		t.observed = true
		if !s.level.set && now.Sub(t.restoredAt) < maxAge {
			s.level = t.restored[sig]
		}
		t.restored[sig] = gauge{}
	}
}
