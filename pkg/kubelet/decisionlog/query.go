package decisionlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Query selects records. The zero value selects all.
type Query struct {
	// Since is the time of the oldest record.
	Since time.Time
	// Pod selects records about a pod; nil for any.
	Pod *PodQuery
	// Limit is the greatest number of decisions; 0 for any.
	Limit int
}

func (q *Query) selects(r *record) bool {
	return !r.time.Before(q.Since) && (q.Pod == nil || r.isAbout(q.Pod))
}

// found is a record as it was when it was looked for: records are not modified but for their outcomes.
type found struct {
	*record
	outcomes []debugv1alpha1.PressureOutcome
}

// find returns the records that the query selects, the newest decisions up to its limit, the oldest first. With replay,
// those that decisions without a state are made after come with them.
func (l *Log) find(q *Query, replay bool) (list []found, omitted int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	decisions, before := 0, uint64(0)
	for i := len(l.ring.records) - 1; i >= 0; i-- {
		r := l.ring.records[i]
		selected := q.selects(r)
		if selected && r.decision != nil {
			if decisions++; q.Limit > 0 && decisions > q.Limit {
				omitted++
				selected = false
			}
		}
		if !selected && (r.decision == nil || r.number != before) {
			continue
		}
		list = append(list, found{r, r.outcomes})
		if r.decision == nil {
			continue // It stands between two decisions.
		}
		if before = 0; replay && !r.withState {
			before = r.number - 1
		}
	}
	slices.Reverse(list)
	return list, omitted
}

// WriteDecisions writes a PressureDecisionList of the records that the query selects, without candidates. It has one
// decision at a time in memory: a log of some MiB is a list of some hundred.
func (l *Log) WriteDecisions(to io.Writer, q *Query) error {
	records, omitted := l.find(q, false)
	list := debugv1alpha1.PressureDecisionList{
		APIVersion: debugv1alpha1.PressureAPIVersion, Kind: debugv1alpha1.PressureDecisionListKind, Node: l.Node,
		Items: []debugv1alpha1.PressureDecision{}, Omitted: omitted,
	}
	for _, r := range records {
		switch {
		case r.admission != nil:
			list.Admissions = append(list.Admissions, *r.admission)
		case r.preemption != nil:
			list.Preemptions = append(list.Preemptions, *r.preemption)
		}
	}
	text, err := json.Marshal(&list)
	if err != nil {
		return err
	}
	const begin = `"items":[`
	items := bytes.Index(text, []byte(begin)) + len(begin)
	if _, err := to.Write(text[:items]); err != nil {
		return err
	}
	comma := ""
	for i := range records {
		if records[i].decision == nil {
			continue
		}
		d, err := records[i].decode()
		if err != nil {
			return err
		}
		d.Rankings = nil
		item, err := json.Marshal(&d)
		if err != nil {
			return err
		}
		if _, err := to.Write(append([]byte(comma), item...)); err != nil {
			return err
		}
		comma = ","
	}
	_, err = to.Write(append(text[items:], '\n'))
	return err
}

func (r *found) decode() (d debugv1alpha1.PressureDecision, err error) {
	text, err := decompress(r.decision)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	d.Outcomes = r.outcomes
	return d, err
}

// Decision returns the record of a decision; false if there is none.
func (l *Log) Decision(number uint64) (d debugv1alpha1.PressureDecision, ok bool, err error) {
	l.mu.Lock()
	r := found{record: l.ring.find(number)}
	if r.record != nil {
		r.outcomes = r.record.outcomes
	}
	l.mu.Unlock()
	if r.record == nil {
		return d, false, nil
	}
	d, err = r.decode()
	d.APIVersion, d.Kind = debugv1alpha1.PressureAPIVersion, debugv1alpha1.PressureDecisionKind
	return d, true, err
}

// Status returns how far the node is from its thresholds; with rankings if ranked is true.
func (l *Log) Status(ranked bool) debugv1alpha1.PressureStatus {
	s := debugv1alpha1.PressureStatus{
		APIVersion: debugv1alpha1.PressureAPIVersion, Kind: debugv1alpha1.PressureStatusKind, Node: l.Node,
		Time: l.Clock.Now(), Signals: []debugv1alpha1.PressureSignal{}, Log: l.state(),
	}
	if l.Waiting != nil {
		s.Waiting = l.Waiting()
	}
	if l.Plugins != nil {
		s.Plugins = l.Plugins()
	}
	newest := l.newest.get()
	if newest == nil {
		return s
	}
	var detailed *trace.Round
	if ranked {
		detailed = l.detailed.get()
	}
	trace.Status(&s, newest, detailed)
	return s
}

func (l *Log) state() debugv1alpha1.PressureLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := debugv1alpha1.PressureLog{
		Records: len(l.ring.records), Bytes: l.ring.size, LimitBytes: l.ring.limit, Watchers: len(l.watchers.list),
	}
	if len(l.ring.records) > 0 {
		s.Oldest = l.ring.records[0].time
	}
	l.Disk.state(&s)
	return s
}

// WriteTrace writes the records that the query selects as a trace, with what their decisions can be made from again.
func (l *Log) WriteTrace(w io.Writer, q *Query) error {
	records, _ := l.find(q, true)
	rules := map[string]debugv1alpha1.PressureTraceRules{}
	l.mu.Lock()
	for id, r := range l.ring.rules {
		rules[id] = r.PressureTraceRules
	}
	l.mu.Unlock()
	t := &tracer{to: w, rules: rules, written: map[string]bool{}, pods: map[*snapshot.Facts]bool{}}
	t.encode(&debugv1alpha1.PressureTrace{
		APIVersion: debugv1alpha1.PressureAPIVersion, Kind: debugv1alpha1.PressureTraceKind,
		Start: &debugv1alpha1.PressureTraceStart{Node: l.Node, Time: l.Clock.Now()},
	})
	for i := range records {
		if t.write(&records[i]); t.err != nil {
			return t.err
		}
	}
	return t.err
}

// tracer writes lines until the first error.
type tracer struct {
	to      io.Writer
	rules   map[string]debugv1alpha1.PressureTraceRules
	written map[string]bool
	pods    map[*snapshot.Facts]bool
	err     error
}

func (t *tracer) encode(line *debugv1alpha1.PressureTrace) {
	text, err := json.Marshal(line)
	if t.err == nil {
		t.err = err
	}
	t.text(append(text, '\n'))
}

func (t *tracer) text(line []byte) {
	if t.err == nil {
		_, t.err = t.to.Write(line)
	}
}

func (t *tracer) write(r *found) {
	switch {
	case r.admission != nil:
		t.encode(&debugv1alpha1.PressureTrace{Admission: r.admission})
		return
	case r.preemption != nil:
		t.encode(&debugv1alpha1.PressureTrace{Preemption: r.preemption})
		return
	}
	rules, ok := t.rules[r.rules]
	if !ok {
		return // The record was dropped since it was found, with its rules.
	}
	if !t.written[r.rules] {
		t.written[r.rules] = true
		t.encode(&debugv1alpha1.PressureTrace{Rules: &rules})
	}
	for _, f := range r.pods {
		if t.pods[f] {
			continue
		}
		t.pods[f] = true
		pod, err := trace.EncodePod(f)
		if err != nil {
			t.err = err
			return
		}
		t.encode(&debugv1alpha1.PressureTrace{Pod: &pod})
	}
	decision, err := decompress(r.decision)
	replay, err2 := decompress(r.replay)
	if err != nil || err2 != nil || len(decision) < 2 {
		t.err = fmt.Errorf("decision %d cannot be read", r.number)
		return
	}
	t.text(decisionLine(decision, replay))
	for i := range r.outcomes {
		t.encode(&debugv1alpha1.PressureTrace{Outcome: &r.outcomes[i]})
	}
}
