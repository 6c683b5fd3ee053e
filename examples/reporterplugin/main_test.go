package main

import (
	"encoding/json"
	"testing"

	"github.com/plimsoll-project/plimsoll/pkg/apis/reporterplugin/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/example"
)

func TestMain(m *testing.M) { example.Main(m, main) }

// The example registers, and reports an annotation of the CustomNodeResource.
func TestExample(t *testing.T) {
	conn := example.Start(t, "ReporterPlugin")
	answer, err := v1alpha1.NewReporterPluginClient(conn).GetReportContent(t.Context(), &v1alpha1.Empty{})
	if err != nil || len(answer.GetContent()) != 1 || len(answer.GetContent()[0].GetField()) != 1 {
		t.Fatalf("GetReportContent: %v, %v", answer, err)
	}
	kind, field := answer.GetContent()[0].GetGroupVersionKind(), answer.GetContent()[0].GetField()[0]
	if kind.GetGroup() != "node.katalyst.kubewharf.io" || kind.GetVersion() != "v1alpha1" ||
		kind.GetKind() != "CustomNodeResource" {
		t.Errorf("kind: %v", kind)
	}
	var annotations map[string]string
	if err := json.Unmarshal(field.GetValue(), &annotations); err != nil || len(annotations) != 1 ||
		annotations["example.com/kernel"] == "" || field.GetFieldType() != v1alpha1.FieldType_Metadata ||
		field.GetFieldName() != "Annotations" {
		t.Errorf("field: %v, %v", field, err)
	}
}

func TestDocument(t *testing.T) { example.CheckDocument(t) }
