package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewharf/katalyst-api/pkg/plugins/skeleton"
	"github.com/kubewharf/katalyst-api/pkg/protocol/reporterplugin/v1alpha1"
)

// reporterPlugin is a reporter plugin that answers what its control file says.
type reporterPlugin struct {
	skeleton.DummyReporterPlugin
	calls   *callFile
	name    string
	control string
}

// content is what the control file has of one object.
type content struct {
	Group   string  `json:"group,omitempty"`
	Version string  `json:"version"`
	Kind    string  `json:"kind"`
	Fields  []field `json:"fields"`
}

type field struct {
	// Type is Spec, Status or Metadata.
	Type  string          `json:"type"`
	Name  string          `json:"name"`
	Value json.RawMessage `json:"value"`
}

func (p *reporterPlugin) Name() string { return p.name }

// GetReportContent answers with the field poll of the control file. Without it the call is not implemented.
func (p *reporterPlugin) GetReportContent(
	context.Context, *v1alpha1.Empty,
) (*v1alpha1.GetReportContentResponse, error) {
	a, err := p.answer("GetReportContent")
	if err != nil {
		return nil, err
	}
	if a.Poll == nil {
		return nil, status.Error(codes.Unimplemented, "the control file has no answer")
	}
	return reported(a.Poll)
}

// ListAndWatchReportContent sends the field stream of the control file, and again whenever it has changed. The stream
// ends when endStream has changed.
func (p *reporterPlugin) ListAndWatchReportContent(
	_ *v1alpha1.Empty, stream v1alpha1.ReporterPlugin_ListAndWatchReportContentServer,
) error {
	opened, err := p.answer("ListAndWatchReportContent")
	if err != nil {
		return err
	}
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	var sent []content
	for {
		a, err := readAnswers(p.control)
		if err != nil {
			return err
		}
		if a.EndStream != opened.EndStream {
			return nil
		}
		if a.Stream != nil && !reflect.DeepEqual(a.Stream, sent) {
			message, err := reported(a.Stream)
			if err != nil {
				return err
			}
			if err := stream.Send(message); err != nil {
				return err
			}
			sent = a.Stream
		}
		select {
		case <-look.C:
		case <-stream.Context().Done():
			return nil
		}
	}
}

// answer records the call and reads what to answer.
func (p *reporterPlugin) answer(method string) (*answers, error) {
	if err := p.calls.add(call{Time: time.Now(), Call: method, Pods: []string{}}); err != nil {
		return nil, err
	}
	return readAnswers(p.control)
}

func reported(list []content) (*v1alpha1.GetReportContentResponse, error) {
	message := &v1alpha1.GetReportContentResponse{}
	for _, c := range list {
		report := &v1alpha1.ReportContent{
			GroupVersionKind: &metav1.GroupVersionKind{Group: c.Group, Version: c.Version, Kind: c.Kind},
		}
		for _, f := range c.Fields {
			kind, ok := v1alpha1.FieldType_value[f.Type]
			if !ok {
				return nil, fmt.Errorf("unknown type of field %q", f.Type)
			}
			report.Field = append(report.Field, &v1alpha1.ReportField{
				FieldType: v1alpha1.FieldType(kind), FieldName: f.Name, Value: f.Value,
			})
		}
		message.Content = append(message.Content, report)
	}
	return message, nil
}
