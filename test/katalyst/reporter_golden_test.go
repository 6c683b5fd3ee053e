package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	node "github.com/kubewharf/katalyst-api/pkg/apis/node/v1alpha1"
	"github.com/kubewharf/katalyst-api/pkg/consts"
	"github.com/kubewharf/katalyst-api/pkg/protocol/reporterplugin/v1alpha1"
)

// reporterGolden are the messages of the protocol of reporter plugins, by the names of their files, each with an empty
// message of its type. The kubelet's test has the same.
func reporterGolden() map[string][2]message {
	zone := &v1alpha1.ReportField{
		FieldType: v1alpha1.FieldType_Status, FieldName: "TopologyZone", Value: []byte(`[{"type":"Socket","name":"0"}]`),
	}
	label := &v1alpha1.ReportField{
		FieldType: v1alpha1.FieldType_Metadata, FieldName: "Labels", Value: []byte(`{"a":"b"}`),
	}
	return map[string][2]message{
		"Empty":       {&v1alpha1.Empty{}, &v1alpha1.Empty{}},
		"ReportField": {zone, &v1alpha1.ReportField{}},
		"GetReportContentResponse": {
			&v1alpha1.GetReportContentResponse{Content: []*v1alpha1.ReportContent{
				{
					GroupVersionKind: &metav1.GroupVersionKind{
						Group: "node.katalyst.kubewharf.io", Version: "v1alpha1", Kind: "CustomNodeResource",
					},
					Field: []*v1alpha1.ReportField{
						zone, label, {FieldType: v1alpha1.FieldType_Spec, FieldName: "Taints", Value: []byte("null")},
					},
				},
				{},
			}},
			&v1alpha1.GetReportContentResponse{},
		},
		"CoreGroup": {
			&v1alpha1.ReportContent{
				GroupVersionKind: &metav1.GroupVersionKind{Version: "v1", Kind: "Node"}, Field: []*v1alpha1.ReportField{label},
			},
			&v1alpha1.ReportContent{},
		},
	}
}

// Katalyst's generated code encodes the messages to the bytes in testdata/reporter/katalyst, and decodes those of the
// kubelet, in testdata/reporter/kubelet, to the same messages. The other direction is a test of the kubelet, in
// pkg/apis/reporterplugin/v1alpha1.
func TestReporterGolden(t *testing.T) {
	for name, m := range reporterGolden() {
		got, err := m[0].Marshal()
		if err != nil {
			t.Fatal(err)
		}
		compareWithFile(t, filepath.Join("testdata/reporter/katalyst", name+".bin"), got)
		if *update {
			continue
		}
		for _, dir := range []string{"katalyst", "kubelet"} {
			data := read(t, filepath.Join("testdata/reporter", dir, name+".bin"))
			if again := decodeAndEncode(t, m[1], data); !bytes.Equal(again, got) {
				t.Errorf("%s of %s: decoded and encoded to %x, want %x", name, dir, again, got)
			}
		}
	}
}

// customNodeResource has every field of the type.
func customNodeResource() *node.CustomNodeResource {
	list := func(cpu string) *v1.ResourceList {
		return &v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Gi")}
	}
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	quantity := resource.MustParse("25G")
	attributes := []node.Attribute{{Name: "link", Value: "NVLink"}, {Name: "empty"}}
	resources := node.Resources{
		Allocatable: list("3500m"), Capacity: list("4"),
		ResourcePackages: []node.ResourcePackage{{PackageName: "x2", Allocatable: list("2"), Attributes: attributes}},
		ResourcePools: []node.ResourcePool{
			{PoolName: "batch", MinAllocatable: list("1"), MaxAllocatable: list("2"), Attributes: attributes},
		},
	}
	usage := node.ResourceUsage{
		NUMAUsage: []node.NUMAMetricInfo{{NUMAId: 1, Usage: *list("1")}}, GenericUsage: *list("2"),
	}
	return &node.CustomNodeResource{
		TypeMeta: metav1.TypeMeta{APIVersion: "node.katalyst.kubewharf.io/v1alpha1", Kind: "CustomNodeResource"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "node", CreationTimestamp: at, Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
		},
		Spec: node.CustomNodeResourceSpec{
			NodeResourceProperties: []*node.Property{
				{PropertyName: "cis", PropertyValues: []string{"avx2"}}, {PropertyName: "nbw", PropertyQuantity: &quantity},
			},
			Taints: []node.Taint{{
				Taint:    v1.Taint{Key: "k", Value: "v", Effect: v1.TaintEffectNoSchedule, TimeAdded: &at},
				QoSLevel: consts.QoSLevelReclaimedCores,
			}},
		},
		Status: node.CustomNodeResourceStatus{
			Resources: resources,
			TopologyZone: []*node.TopologyZone{{
				Type: node.TopologyTypeSocket, Name: "0", Resources: node.Resources{Capacity: &v1.ResourceList{}},
				Children: []*node.TopologyZone{{
					Type: node.TopologyTypeNuma, Name: "1", Resources: resources, Attributes: attributes,
					Allocations: []*node.Allocation{{Consumer: "shop/web/u1", Requests: list("1")}, {Consumer: "shop/db/u2"}},
					Siblings:    []node.Sibling{{Type: node.TopologyTypeNuma, Name: "0", Attributes: attributes}},
				}},
			}},
			TopologyPolicy: node.TopologyPolicySingleNUMANodePodLevel,
			Conditions: []node.CNRCondition{{
				Type: node.CNRAgentReady, Status: v1.ConditionTrue, LastHeartbeatTime: at, Reason: "r", Message: "m",
			}},
			NodeMetricStatus: &node.NodeMetricStatus{
				UpdateTime: at, NodeMetric: &node.NodeMetricInfo{ResourceUsage: usage},
				GroupMetric: []node.GroupMetricInfo{
					{QoSLevel: "shared_cores", ResourceUsage: usage, PodList: []string{"shop/web"}},
				},
			},
		},
	}
}

// Katalyst's types encode an object with every field, and one with none, to the JSON in testdata/reporter, and decode
// that to the same objects. The kubelet's types do the same, by a test in pkg/apis/node/v1alpha1.
func TestCustomNodeResourceGolden(t *testing.T) {
	empty := &node.CustomNodeResource{}
	empty.CreationTimestamp = customNodeResource().CreationTimestamp // is encoded as null by some versions if it is zero
	for name, object := range map[string]*node.CustomNodeResource{"full": customNodeResource(), "empty": empty} {
		file := filepath.Join("testdata/reporter", "CustomNodeResource-"+name+".json")
		compareWithFile(t, file, encodeJSON(t, object))
		var decoded node.CustomNodeResource
		if err := json.Unmarshal(read(t, file), &decoded); err != nil {
			t.Fatal(err)
		}
		if got := encodeJSON(t, &decoded); !bytes.Equal(got, read(t, file)) {
			t.Errorf("%s: decoded and encoded to %s", name, got)
		}
	}
}

func encodeJSON(t *testing.T, object *node.CustomNodeResource) []byte {
	t.Helper()
	data, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(data, '\n')
}

func compareWithFile(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, file); !bytes.Equal(got, want) {
		t.Errorf("%s: encoded to %q, the file has %q", file, got, want)
	}
}
