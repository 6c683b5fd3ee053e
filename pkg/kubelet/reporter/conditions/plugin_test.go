package conditions

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

var _ reporter.Plugin = (*Plugin)(nil)

func TestConditionsBecomeTaints(t *testing.T) {
	list := []Condition{
		{Name: "Hot", Effects: []string{"reclaimed_cores/NoSchedule", "shared_cores/NoExecute"}},
		{Name: "Told", Effects: []string{"NoSchedule"}},
		{Name: "Silent"},
	}
	contents, err := Contents(list)
	if err != nil {
		t.Fatal(err)
	}
	result := merge.Merge([]merge.Report{{Plugin: Name, Contents: contents}}, merge.Options{})
	if len(result.Refusals) > 0 {
		t.Errorf("refused: %+v", result.Refusals)
	}
	var got []string
	for _, taint := range result.CustomNodeResource.Spec.Taints {
		got = append(got, string(taint.QoSLevel)+" "+taint.Key+" "+string(taint.Effect))
	}
	want := []string{
		"shared_cores node.katalyst.kubewharf.io/Hot NoExecute", "reclaimed_cores node.katalyst.kubewharf.io/Hot NoSchedule",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// What is read back are the conditions that have taints.
	if diff := cmp.Diff(list[:1], Parse(contents)); diff != "" {
		t.Error(diff)
	}
}

func TestContentsWithoutTaintsAreEmpty(t *testing.T) {
	for _, list := range [][]Condition{nil, {{Name: "Silent"}}} {
		if contents, err := Contents(list); len(contents) > 0 || err != nil {
			t.Errorf("%v: %v, %v", list, contents, err)
		}
	}
}

func TestParseLeavesOutWhatIsNoCondition(t *testing.T) {
	contents := func(name, value string) []merge.Content {
		return []merge.Content{{
			Kind: node.GroupVersionKind, Fields: []merge.ReportField{{Part: merge.Spec, Name: name, Value: []byte(value)}},
		}}
	}
	for _, c := range [][]merge.Content{
		nil, contents("Taints", "{"), contents("Taints", `[{"key":"example.com/a","qosLevel":"shared_cores"}]`),
		contents("Other", `[{"key":"node.katalyst.kubewharf.io/Hot"}]`),
	} {
		if list := Parse(c); len(list) > 0 {
			t.Errorf("%v", list)
		}
	}
}

// Each change is sent, also one that comes while the content before is being sent.
func TestChangesAreSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now []Condition
		p := New(func() []Condition { return now })
		ctx, cancel := context.WithCancel(t.Context())
		var sent [][]Condition
		ended := make(chan error)
		go func() {
			ended <- p.ListAndWatch(ctx, func(contents []merge.Content) {
				sent = append(sent, Parse(contents))
				if len(sent) == 2 {
					now = nil
					p.Changed()
				}
			})
		}()
		synctest.Wait()
		now = []Condition{{Name: "Hot", Effects: []string{"reclaimed_cores/NoSchedule"}}}
		hot := now
		p.Changed()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if diff := cmp.Diff([][]Condition{nil, hot, nil}, sent); diff != "" {
			t.Error(diff)
		}
	})
}
