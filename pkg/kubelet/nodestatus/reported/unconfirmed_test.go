package reported

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A field whose value may be old stays as it is on the Node if the agent has written it, and is written if the Node
// does not have it, or has it from somebody else. Nothing is removed while fields may be missing.
func TestUnconfirmedFieldsStay(t *testing.T) {
	field := func(key string) Field { return Field{Label, key} }
	recorded, foreign, missing, confirmed, gone := field("recorded"), field("foreign"), field("missing"),
		field("confirmed"), field("gone")
	in := Input{
		Node:        Fields{recorded: "new", foreign: "theirs", confirmed: "1", gone: "x"},
		Reported:    Fields{recorded: "old", foreign: "ours", missing: "old", confirmed: "2"},
		Record:      []Field{confirmed, gone, recorded},
		Unconfirmed: map[Field]bool{recorded: true, foreign: true, missing: true},
		Incomplete:  true,
	}
	d := Decide(in)
	if diff := cmp.Diff(Fields{foreign: "ours", missing: "old", confirmed: "2"}, d.Set); diff != "" {
		t.Error(diff)
	}
	if len(d.Removed)+len(d.Forgotten) > 0 {
		t.Errorf("removed %v, forgotten %v", d.Removed, d.Forgotten)
	}
	if diff := cmp.Diff([]Field{confirmed, foreign, gone, missing, recorded}, d.Record); diff != "" {
		t.Error(diff)
	}
	in.Incomplete, in.Unconfirmed = false, nil
	d = Decide(in)
	if d.Set[recorded] != "old" || len(d.Removed) != 1 || d.Removed[0] != gone {
		t.Errorf("when all are confirmed: %+v", d)
	}
}

// A field that the agent has removed, or not yet written, does not come with an answer that may be old. One that
// somebody else has removed does, and so do all of a Node that was created again.
func TestUnconfirmedFieldsThatAreMissing(t *testing.T) {
	removed, lost := Field{Label, "removed"}, Field{Label, "lost"}
	in := Input{
		Reported: Fields{removed: "old", lost: "old"}, Record: []Field{lost}, Recorded: true, Incomplete: true,
		Unconfirmed: map[Field]bool{removed: true, lost: true},
	}
	d := Decide(in)
	if diff := cmp.Diff(Fields{lost: "old"}, d.Set); diff != "" || len(d.Record) != 1 {
		t.Errorf("%s recorded %v", diff, d.Record)
	}
	in.Record, in.Recorded = nil, false
	if d := Decide(in); len(d.Set) != 2 {
		t.Errorf("a new Node gets %v", d.Set)
	}
	in.Recorded, in.Unconfirmed = true, nil
	if d := Decide(in); len(d.Set) != 2 {
		t.Errorf("when the answers are confirmed the Node gets %v", d.Set)
	}
}
