package app

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics/legacyregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	kubeletmetrics "k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// connectRuntime connects to the container runtime, which must respond.
func (p *process) connectRuntime(ctx context.Context) error {
	config := p.settings.Config
	timeout := config.RuntimeRequestTimeout.Duration
	tracer := p.deps.Observability.TracerProvider
	streaming := p.settings.FeatureGates.Enabled(features.CRIListStreaming)

	runtime, err := criclient.NewRemoteRuntimeService(ctx, config.ContainerRuntimeEndpoint, timeout, tracer, streaming)
	if err != nil {
		return fmt.Errorf("containerRuntimeEndpoint (--container-runtime-endpoint) %q: %w", config.ContainerRuntimeEndpoint,
			err)
	}
	endpoint := config.ImageServiceEndpoint
	if endpoint == "" {
		endpoint = config.ContainerRuntimeEndpoint
	}
	images, err := criclient.NewRemoteImageService(ctx, endpoint, timeout, tracer, streaming)
	if err != nil {
		return fmt.Errorf("imageServiceEndpoint (--image-service-endpoint) %q: %w", endpoint, err)
	}
	p.deps.Runtime = kubelet.RuntimeServices{Runtime: runtime, Images: images}
	return nil
}

const (
	runtimeConfigAttempts = 3
	runtimeConfigPause    = 2 * time.Second
)

// setCgroupDriver sets the cgroup driver to that of the runtime (KEP-4033). If the runtime does not report it, the
// configured one is kept.
func (p *process) setCgroupDriver(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	response, err := getRuntimeConfig(ctx, p.deps.Runtime.Runtime)
	if status.Code(err) == codes.Unimplemented {
		legacyregistry.MustRegister(kubeletmetrics.CRILosingSupport)
		kubeletmetrics.CRILosingSupport.WithLabelValues("1.37.0").Inc()
		logger.Info("CRI implementation should be updated to support RuntimeConfig. Falling back to using cgroupDriver " +
			"from kubelet config")
		return nil
	}
	if err != nil {
		return fmt.Errorf("runtime configuration: %w", err)
	}
	if response.GetLinux() == nil {
		return nil // the zero value of the driver is systemd
	}
	switch driver := response.GetLinux().GetCgroupDriver(); driver {
	case runtimeapi.CgroupDriver_SYSTEMD:
		p.settings.Config.CgroupDriver = "systemd"
	case runtimeapi.CgroupDriver_CGROUPFS:
		p.settings.Config.CgroupDriver = "cgroupfs"
	default:
		return fmt.Errorf("runtime returned an unknown cgroup driver %d", driver)
	}
	logger.Info("Using cgroup driver setting received from the CRI runtime",
		"cgroupDriver", p.settings.Config.CgroupDriver)
	return nil
}

type runtimeConfigurer interface {
	RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error)
}

// getRuntimeConfig retries a few times, because the runtime may still be starting.
func getRuntimeConfig(
	ctx context.Context, runtime runtimeConfigurer,
) (response *runtimeapi.RuntimeConfigResponse, err error) {
	for attempt := range runtimeConfigAttempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(runtimeConfigPause):
			}
		}
		response, err = runtime.RuntimeConfig(ctx)
		if err == nil || status.Code(err) == codes.Unimplemented {
			return response, err
		}
	}
	return nil, err
}
