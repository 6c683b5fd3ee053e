package app

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.12.0"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/server/flagz"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/configz"
	"k8s.io/component-base/tracing"
	zpagesfeatures "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletscheme "k8s.io/kubernetes/pkg/kubelet/apis/config/scheme"
	"k8s.io/kubernetes/pkg/kubelet/server"
)

// makeRecorder creates the event recorder. Events go to the log and, unless standalone, to the API server with a rate
// limit of their own.
func (p *process) makeRecorder(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	p.closers = append(p.closers, func(context.Context) { broadcaster.Shutdown() })
	broadcaster.StartStructuredLogging(3)
	if p.api == nil {
		logger.Info("No api server defined - no events will be sent to API server")
	} else {
		events, err := v1core.NewForConfig(eventConfig(p.api, p.settings.Config))
		if err != nil {
			return fmt.Errorf("failed to initialize kubelet event client: %w", err)
		}
		logger.V(4).Info("Sending events to api server")
		broadcaster.StartRecordingToSink(&v1core.EventSinkImpl{Interface: events.Events("")})
	}
	p.deps.Observability.Recorder = broadcaster.NewRecorder(legacyscheme.Scheme,
		v1.EventSource{Component: server.ComponentKubelet, Host: string(p.deps.Identity.NodeName)})
	return nil
}

func eventConfig(api *rest.Config, config *kubeletconfig.KubeletConfiguration) *rest.Config {
	events := *api
	events.QPS = float32(config.EventRecordQPS)
	events.Burst = int(config.EventBurst)
	return &events
}

// publishConfig publishes the configuration at /configz and the flags at /flagz (KEP-4828). A failure does not stop the
// start.
func (p *process) publishConfig(ctx context.Context) error {
	if p.settings.FeatureGates.Enabled(zpagesfeatures.ComponentFlagz) {
		p.deps.Serving.Flagz = flagz.NamedFlagSetsReader{FlagSets: cliflag.NamedFlagSets{
			FlagSets: map[string]*pflag.FlagSet{server.ComponentKubelet: p.settings.FlagSet},
		}}
	}
	if err := registerConfigz(p.settings.Config); err != nil {
		klog.FromContext(ctx).Error(err, "Failed to register kubelet configuration with configz")
	}
	return nil
}

func registerConfigz(config *kubeletconfig.KubeletConfiguration) error {
	scheme, _, err := kubeletscheme.NewSchemeAndCodecs()
	if err != nil {
		return err
	}
	versioned := &v1beta1.KubeletConfiguration{}
	if err := scheme.Convert(config, versioned, nil); err != nil {
		return err
	}
	versioned.SetGroupVersionKind(configKind)
	page, err := configz.New("kubeletconfig")
	if err != nil {
		return err
	}
	return page.Set(versioned)
}

// makeTracing creates the tracer provider (KEP-2831). Without a tracing section nothing is recorded.
func (p *process) makeTracing(ctx context.Context) error {
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
