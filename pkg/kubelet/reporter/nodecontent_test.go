package reporter

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// ofNode is the merge of a label of the Node.
func ofNode(value string, since time.Time) Merged {
	reports := []merge.Report{{Plugin: "p", Contents: []merge.Content{{Kind: merge.NodeKind, Fields: []merge.ReportField{
		{Part: merge.Metadata, Name: "Labels", Value: []byte(`{"example.com/x":"` + value + `"}`)},
	}}}}}
	return Merged{Result: merge.Merge(reports, merge.Options{NodePrefixes: []string{"example.com"}}), Since: since}
}

func TestNodeContent(t *testing.T) {
	changes := 0
	n := NewNodeContent(false, clock.RealClock{}, func() { changes++ })
	expect := func(what, value string, confirmed, known bool, changed int) {
		t.Helper()
		content, c, k := n.Node()
		if content.Labels["example.com/x"] != value || (c != nil) != confirmed || k != known || changes != changed {
			t.Errorf("%s: %v, confirmed %v, known %t, %d changes", what, content.Labels, c, k, changes)
		}
	}
	expect("not selected", "", false, true, 0)
	n.Select(true)
	expect("selected", "", false, false, 1)
	start := time.Now()
	first := ofNode("1", start)
	first.Confirmed = &merge.Result{}
	n.Set(first)
	expect("restored", "1", true, true, 2)
	n.Set(ofNode("1", time.Time{}))
	expect("confirmed", "1", false, true, 3)
	n.Set(ofNode("1", time.Time{}))
	expect("same", "1", false, true, 3)
	if w := n.Write(); w.Kind != "Node" || !w.Selected || !w.PendingSince.Equal(start) || w.Count != 0 {
		t.Errorf("before the write: %+v", w)
	}
	content, _, _ := n.Node()
	away := errors.New("away")
	n.Written(&content, 1, away, start.Add(time.Second))
	if w := n.Write(); !errors.Is(w.Err, away) || !w.PendingSince.Equal(start) || !w.Last.IsZero() {
		t.Errorf("after an error: %+v", w)
	}
	n.Set(ofNode("2", start.Add(2*time.Second)))
	n.Written(&content, 1, nil, start.Add(3*time.Second))
	if w := n.Write(); w.Err != nil || !w.PendingSince.Equal(start.Add(2*time.Second)) || w.Count != 1 {
		t.Errorf("a write of older content: %+v", w)
	}
	content, _, _ = n.Node()
	n.Written(&content, 1, nil, start.Add(4*time.Second))
	if w := n.Write(); !w.PendingSince.IsZero() || w.Count != 2 || !w.Last.Equal(start.Add(4*time.Second)) {
		t.Errorf("written: %+v", w)
	}
	n.Select(false)
	expect("turned off", "", false, true, 5)
}

// What waits for a write waits since the Node was selected, and is not overdue for what came before. So does what
// follows from options, with which no answer comes.
func TestNodeContentWaitsSinceItIsSelected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		n := NewNodeContent(false, clock.RealClock{}, func() {})
		pending := func(what string, want time.Time) {
			t.Helper()
			if w := n.Write(); !w.PendingSince.Equal(want) {
				t.Errorf("%s: %+v", what, w)
			}
		}
		n.Set(ofNode("1", start))
		time.Sleep(time.Hour)
		n.Select(true)
		pending("selected", start.Add(time.Hour))
		if w := n.Write(); w.Overdue(time.Now()) {
			t.Error("what was selected just now is overdue")
		}
		content, _, _ := n.Node()
		n.Written(&content, 1, nil, time.Now())
		pending("written", time.Time{})
		n.Set(ofNode("2", time.Time{}))
		pending("other options", start.Add(time.Hour))
		n.Select(false)
		content, _, _ = n.Node()
		n.Written(&content, 1, nil, time.Now())
		n.Set(ofNode("3", time.Now()))
		pending("not selected", time.Time{})
	})
	n := NewNodeContent(true, clock.RealClock{}, func() {})
	n.Set(Merged{})
	if w := n.Write(); !w.PendingSince.IsZero() {
		t.Errorf("nothing is reported: %+v", w)
	}
}
