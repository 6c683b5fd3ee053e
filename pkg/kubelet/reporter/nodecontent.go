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
	n.mu.Unlock()
	if !same {
		n.changed()
	}
}

// Set replaces what plugins report. It is a sink of a Merger.
func (n *NodeContent) Set(m Merged) {
	n.mu.Lock()
	last := n.merged
	n.merged = &m
	same := last != nil && equalNode(&last.Result, &m.Result)
	if !same && n.write.PendingSince.IsZero() {
		n.write.PendingSince = m.Since
	}
	same = same && (last.Confirmed == nil) == (m.Confirmed == nil) &&
		(m.Confirmed == nil || equalNode(last.Confirmed, m.Confirmed))
	n.mu.Unlock()
	if !same {
		n.changed()
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
	return n.merged.Result.Node, confirmed, true
}

// Written records that the Node was compared with content that Node has returned, after which it has it, or err.
// requests is how many requests that took.
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
	if n.merged == nil || !n.selected || !equality.Semantic.DeepEqual(content, &n.merged.Result.Node) {
		return // there is a newer one, which is not written
	}
	if since := n.write.PendingSince; requests > 0 && !since.IsZero() {
		ObserveWritten(merge.NodeKind.Kind, at.Sub(since))
	}
	n.write.PendingSince = time.Time{}
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
