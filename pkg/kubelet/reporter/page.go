package reporter

import (
	"cmp"
	"maps"
	"slices"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/answers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// List returns the state of all plugins, enabled or not, for the page /debug/plugins, in the order of names and
// sockets. result is the last merge of their reports.
func (d *Driver) List(result *merge.Result) []debugv1alpha1.Reporter {
	rows := map[answers.Key]debugv1alpha1.Reporter{}
	options := d.options.Load()
	for name := range d.config.InTree {
		rows[answers.Key{Plugin: name}] = debugv1alpha1.Reporter{Name: name, InTree: true, Enabled: options.InTree(name)}
	}
	for _, r := range d.config.Remote() {
		if _, taken := d.config.InTree[r.Name]; taken {
			continue
		}
		row := debugv1alpha1.Reporter{
			Name: r.Name, Socket: r.Socket, Enabled: options.Remote(r.Name), Registered: r.Registered,
		}
		if r.Health != nil {
			row.Health = r.Health()
		}
		rows[answers.Key{Plugin: r.Name, Socket: r.Socket}] = row
	}
	for _, e := range d.Endpoints() {
		row, known := rows[e.Key]
		if !known {
			row = debugv1alpha1.Reporter{Name: e.Plugin, Socket: e.Socket, Registered: e.Registered}
		}
		rows[e.Key] = withEndpoint(row, &e, result)
	}
	return slices.SortedFunc(maps.Values(rows), func(a, b debugv1alpha1.Reporter) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Socket, b.Socket))
	})
}

func withEndpoint(row debugv1alpha1.Reporter, e *answers.Endpoint, result *merge.Result) debugv1alpha1.Reporter {
	row.Active, row.Streaming, row.Answered, row.UnconfirmedSince = e.Active, e.Streaming, e.Received, e.Lost
	row.Restored = e.Restored
	for _, reason := range e.Refusals {
		if reason != "" {
			row.RefusedAnswers = append(row.RefusedAnswers, reason)
		}
	}
	if e.Received.IsZero() {
		return row
	}
	for _, r := range result.Refusals {
		if r.Plugin == e.Plugin {
			row.RefusedFields = append(row.RefusedFields,
				debugv1alpha1.RefusedField{Kind: r.Kind, Field: r.Field, Reason: r.Reason})
		}
	}
	return row
}

// Write is what is known about the writes of an object.
type Write struct {
	// Kind is that of the object: CustomNodeResource or Node.
	Kind string
	// Selected: the configuration selects the object.
	Selected bool
	// Last is when the object was written last, zero if it was not. Count is how often since the start.
	Last  time.Time
	Count int64
	// PendingSince is when the oldest change came that is not written yet, zero if there is none.
	PendingSince time.Time
	// Err is the error of the last write, nil if it succeeded.
	Err error
}

// overdueAfter is how long a change may wait for its write until that is reported.
const overdueAfter = 5 * time.Minute

// Overdue returns whether a change has waited for too long to be written.
func (w *Write) Overdue(now time.Time) bool {
	return w.Selected && !w.PendingSince.IsZero() && now.Sub(w.PendingSince) >= overdueAfter
}

// ObjectOf returns the state of an object for the page /debug/plugins.
func ObjectOf(result *merge.Result, w Write, now time.Time) debugv1alpha1.ReportedObject {
	o := debugv1alpha1.ReportedObject{
		Kind: w.Kind, Published: w.Selected, LastWrite: w.Last, Writes: w.Count, PendingSince: w.PendingSince,
		Overdue: w.Overdue(now),
	}
	if w.Err != nil {
		o.LastError = w.Err.Error()
	}
	for i := range result.Fields {
		if f := &result.Fields[i]; f.Kind == w.Kind {
			o.Fields = append(o.Fields,
				debugv1alpha1.ReportedField{Path: f.Path, Bytes: len(f.JSON), Plugins: f.Plugins})
		}
	}
	for _, c := range result.Conflicts {
		if c.Kind == w.Kind {
			o.Conflicts = append(o.Conflicts, debugv1alpha1.ReportConflict{Path: c.Path, Used: c.Used, Ignored: c.Ignored})
		}
	}
	if o.Published || len(o.Conflicts) > 0 {
		o.MoreConflicts = result.MoreConflicts
	}
	return o
}
