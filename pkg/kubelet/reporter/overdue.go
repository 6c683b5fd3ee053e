package reporter

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
)

const (
	// overdueCheckPeriod is the time between two checks for objects that are not written.
	overdueCheckPeriod = 30 * time.Second

	eventOverdue = "ReporterObjectOverdue"
)

// OverdueWatch records an event when a change has waited for 5 minutes to be written to an object. All fields are
// required.
type OverdueWatch struct {
	// Writes returns what is known about the writes of the objects.
	Writes func() []Write
	Clock  clock.WithTicker
	// Recorder records events about Node.
	Recorder Recorder
	Node     *v1.ObjectReference
}

// Recorder records events.
type Recorder interface {
	Eventf(object runtime.Object, eventType, reason, messageFmt string, args ...any)
}

// Run checks the objects until ctx ends. There is one event about an object until it has been written. It must be
// called once at a time.
func (o *OverdueWatch) Run(ctx context.Context) {
	ticker := o.Clock.NewTicker(overdueCheckPeriod)
	defer ticker.Stop()
	recorded := map[string]bool{}
	for {
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
		now := o.Clock.Now()
		for _, w := range o.Writes() {
			overdue := w.Overdue(now)
			if overdue && !recorded[w.Kind] {
				why := "it was not tried"
				if w.Err != nil {
					why = w.Err.Error()
				}
				o.Recorder.Eventf(o.Node, v1.EventTypeWarning, eventOverdue,
					"What reporter plugins report has not been written to the %s for %s: %s", w.Kind,
					now.Sub(w.PendingSince).Round(time.Second), why)
			}
			recorded[w.Kind] = overdue
		}
	}
}
