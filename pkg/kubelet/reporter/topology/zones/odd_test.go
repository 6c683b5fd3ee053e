package zones_test

import (
	"encoding/json"
	"testing"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/topology/zones"
)

// A device without an ID counts, and is no zone: the merge refuses all zones for one without a name.
func TestDevicesWithoutID(t *testing.T) {
	f := oneNode(zones.Device{Resource: "example.com/gpu"}, zones.Device{Resource: "example.com/gpu", ID: "0"})
	tree := zones.New(f, zones.Options{})
	value, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	result := merge.Merge([]merge.Report{{Plugin: "p", Contents: []merge.Content{{
		Kind:   node.GroupVersionKind,
		Fields: []merge.ReportField{{Part: merge.Status, Name: "TopologyZone", Value: value}},
	}}}}, merge.Options{})
	if len(result.Refusals) > 0 {
		t.Errorf("refused: %+v", result.Refusals)
	}
	numa := tree[0].Children[0]
	if n := quantity(numa.Resources.Allocatable, "example.com/gpu"); n != 2 || len(numa.Children) != 1 {
		t.Errorf("%d devices, %d zones of devices", n, len(numa.Children))
	}
}
