package app

import (
	"context"
	"fmt"

	resource "go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.12.0"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/server"
)

// trace prepares distributed tracing (KEP-2831). Without a tracing section nothing is recorded.
func (p *process) trace(ctx context.Context) error {
	self := resource.WithAttributes(
		semconv.ServiceNameKey.String(server.ComponentKubelet),
		semconv.HostNameKey.String(p.deps.Identity.Hostname),
	)
	provider, err := tracing.NewProvider(context.WithoutCancel(ctx), p.settings.Config.Tracing, nil,
		[]resource.Option{self})
	if err != nil {
		return fmt.Errorf("tracing: could not configure tracer provider: %w", err)
	}
	p.closers = append(p.closers, func(ctx context.Context) {
		if err := provider.Shutdown(ctx); err != nil {
			klog.FromContext(ctx).Info("Failed to send the last traces", "err", err)
		}
	})
	p.deps.Observability.TracerProvider = provider
	return nil
}
