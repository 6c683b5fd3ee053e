package reporter

import (
	"bytes"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// NodeContent has what plugins report of the Node, for the part of the agent that writes the Node. It is safe for
// concurrent use.
type NodeContent struct {
	clock clock.PassiveClock
	// changed is called after each change.
	changed func()

	mu       sync.Mutex
	selected bool
	merged   *Merged
	write    Write
	// later is when the oldest change came since the last call of Node, zero if none came.
	later time.Time
}

// NewNodeContent returns content that is not known yet. selected: the configuration selects the Node. changed is called
// after each change, and must return at once.
func NewNodeContent(selected bool, c clock.PassiveClock, changed func()) *NodeContent {
	registerMetrics()
	return &NodeContent{clock: c, changed: changed, selected: selected}
}

// Select sets whether the configuration selects the Node.
func (n *NodeContent) Select(selected bool) {
	n.mu.Lock()
	same := n.selected == selected
	n.selected = selected
	if !same {
		// What came while the Node was not selected did not wait for a write.
		n.write.PendingSince, n.later = time.Time{}, time.Time{}
		if selected && n.merged != nil && len(nodeFields(&n.merged.Result)) > 0 {
			n.write.PendingSince = n.clock.Now()
		}
	}
	n.mu.Unlock()
	if !same {
		n.changed()
	}
}

// Set replaces what plugins report. It is a sink of a Merger.
func (n *NodeContent) Set(m Merged) {
	n.mu.Lock()
	last, first := n.merged, n.merged == nil
	if first {
		last = &Merged{}
	}
	n.merged = &m
	same := equalNode(&last.Result, &m.Result)
	if !same && n.selected {
		n.pending(m.Since)
	}
	same = same && !first && (last.Confirmed == nil) == (m.Confirmed == nil) &&
		(m.Confirmed == nil || equalNode(last.Confirmed, m.Confirmed))
	n.mu.Unlock()
	if !same {
		n.changed()
	}
}

// pending notes a change that is to be written: that of an answer at a time, or of the options, which has none.
func (n *NodeContent) pending(since time.Time) {
	if since.IsZero() {
		since = n.clock.Now()
	}
	if n.write.PendingSince.IsZero() {
		n.write.PendingSince = since
	}
	if n.later.IsZero() {
		n.later = since
	}
}

// Node returns what the Node should have. confirmed is what plugins have reported since the start of the agent, nil if
// that is all, see Merged. known is false before the first merge. Without the Node in the configuration it should have
// nothing.
func (n *NodeContent) Node() (content merge.Node, confirmed *merge.Node, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.selected:
		return merge.Node{}, nil, true
	case n.merged == nil:
		return merge.Node{}, nil, false
	case n.merged.Confirmed != nil:
		confirmed = &n.merged.Confirmed.Node
	}
	n.later = time.Time{}
	return n.merged.Result.Node, confirmed, true
}

// Written records that the Node was compared with the content that Node has returned last, after which it has it, or
// err. requests is how many requests that took.
func (n *NodeContent) Written(content *merge.Node, requests int, err error, at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.write.Err = err
	if requests > 0 || err != nil {
		CountWrite(merge.NodeKind.Kind, writeResult(err))
	}
	if err != nil {
		return
	}
	if requests > 0 {
		n.write.Last = at
		n.write.Count += int64(requests)
	}
	if !n.selected {
		return
	}
	if since := n.write.PendingSince; requests > 0 && !since.IsZero() {
		ObserveWritten(merge.NodeKind.Kind, at.Sub(since))
	}
	n.write.PendingSince = n.later
	if n.merged != nil && equality.Semantic.DeepEqual(content, &n.merged.Result.Node) {
		n.write.PendingSince = time.Time{} // what has changed meanwhile has changed back
	}
}

// Write returns what is known about the writes of the Node.
func (n *NodeContent) Write() Write {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.write
	w.Kind, w.Selected = merge.NodeKind.Kind, n.selected
	return w
}

// equalNode returns whether two merges have the same fields of the Node.
func equalNode(a, b *merge.Result) bool {
	return slices.EqualFunc(nodeFields(a), nodeFields(b), func(x, y merge.Field) bool {
		return x.Path == y.Path && bytes.Equal(x.JSON, y.JSON)
	})
}

func nodeFields(r *merge.Result) (list []merge.Field) {
	for _, f := range r.Fields {
		if f.Kind == merge.NodeKind.Kind {
			list = append(list, f)
		}
	}
	return list
}

func writeResult(err error) string {
	if err != nil {
		return "error"
	}
	return "written"
}
