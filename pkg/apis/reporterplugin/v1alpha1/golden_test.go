package v1alpha1_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
)

// goldenFiles has messages that this package's code has encoded, and those of Katalyst's generated code, which
// test/katalyst/reporter_golden_test.go writes.
const goldenFiles = "../../../../test/katalyst/testdata/reporter"

var update = flag.Bool("update", false, "write the golden files of the kubelet")

func ofKind(group, version, kind string) *v1alpha1.GroupVersionKind {
	return &v1alpha1.GroupVersionKind{Group: group, Version: version, Kind: kind}
}

// golden are the messages of the protocol, by the names of their files. The test in test/katalyst has the same.
func golden() map[string]proto.Message {
	zone := &v1alpha1.ReportField{
		FieldType: v1alpha1.FieldType_Status, FieldName: "TopologyZone", Value: []byte(`[{"type":"Socket","name":"0"}]`),
	}
	label := &v1alpha1.ReportField{
		FieldType: v1alpha1.FieldType_Metadata, FieldName: "Labels", Value: []byte(`{"a":"b"}`),
	}
	return map[string]proto.Message{
		"Empty":       &v1alpha1.Empty{},
		"ReportField": zone,
		"GetReportContentResponse": &v1alpha1.GetReportContentResponse{Content: []*v1alpha1.ReportContent{
			{
				GroupVersionKind: ofKind("node.katalyst.kubewharf.io", "v1alpha1", "CustomNodeResource"),
				Field: []*v1alpha1.ReportField{
					zone, label, {FieldType: v1alpha1.FieldType_Spec, FieldName: "Taints", Value: []byte("null")},
				},
			},
			{},
		}},
		"CoreGroup": &v1alpha1.ReportContent{
			GroupVersionKind: ofKind("", "v1", "Node"), Field: []*v1alpha1.ReportField{label},
		},
	}
}

// The messages of this package are Katalyst's on the wire: the same values are encoded to the same bytes, and these are
// decoded to the same values. Katalyst's code encodes empty strings of a kind, too. The other direction is tested in
// test/katalyst, with the files that -update writes here.
func TestWireCompatibleWithKatalyst(t *testing.T) {
	messages := golden()
	for name, m := range messages {
		got, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(goldenFiles, "kubelet", name+".bin")
		if *update {
			if err := os.WriteFile(file, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if want := read(t, file); !bytes.Equal(got, want) {
			t.Errorf("%s: encoded to %x, the file has %x", name, got, want)
		}
		ofKatalyst := read(t, filepath.Join(goldenFiles, "katalyst", name+".bin"))
		if name != "CoreGroup" && !bytes.Equal(got, ofKatalyst) {
			t.Errorf("%s: encoded to %x, Katalyst's code to %x", name, got, ofKatalyst)
		}
		decoded := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(ofKatalyst, decoded); err != nil || !proto.Equal(decoded, m) {
			t.Errorf("%s: decoded to %v, %v, want %v", name, decoded, err, m)
		}
	}
	for _, dir := range []string{"katalyst", "kubelet"} {
		files, err := filepath.Glob(filepath.Join(goldenFiles, dir, "*.bin"))
		if err != nil || len(files) != len(messages) {
			t.Errorf("%d golden files of %s, %v, want %d", len(files), dir, err, len(messages))
		}
	}
}

// The names by which programs find the calls are Katalyst's.
func TestServiceIsKatalysts(t *testing.T) {
	service := v1alpha1.ReporterPlugin_ServiceDesc
	if service.ServiceName != "reporterplugin.v1alpha1.ReporterPlugin" {
		t.Errorf("service %s", service.ServiceName)
	}
	if len(service.Methods) != 1 || service.Methods[0].MethodName != "GetReportContent" {
		t.Errorf("calls %v", service.Methods)
	}
	if len(service.Streams) != 1 || service.Streams[0].StreamName != "ListAndWatchReportContent" ||
		!service.Streams[0].ServerStreams || service.Streams[0].ClientStreams {
		t.Errorf("streams %v", service.Streams)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
