package podsync

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.12.0"
	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// span is the trace of one phase of one pod.
type span struct{ otel trace.Span }

// begin starts a span with stock's names, so that dashboards for traces work with both kubelets.
func (s *Syncer) begin(
	ctx context.Context, name string, pod *v1.Pod, extra ...attribute.KeyValue,
) (context.Context, span) {
	attributes := append([]attribute.KeyValue{
		attribute.String("k8s.pod", klog.KObj(pod).String()),
		semconv.K8SPodNameKey.String(pod.Name),
		semconv.K8SNamespaceNameKey.String(pod.Namespace),
		semconv.K8SPodUIDKey.String(string(pod.UID)),
	}, extra...)
	ctx, otel := s.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
	return ctx, span{otel}
}

func (s span) end(err error) {
	if err != nil {
		s.otel.RecordError(err)
		s.otel.SetStatus(codes.Error, err.Error())
	}
	s.otel.End()
}

func updateType(t kubetypes.SyncPodType) attribute.KeyValue {
	return attribute.String("k8s.pod.update_type", t.String())
}
