package app

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics/legacyregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criclient "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
	kubeletmetrics "k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet"
)

// reachRuntime connects to the container runtime, which must answer: without it there is nothing to start for.
func (p *process) reachRuntime(ctx context.Context) error {
	config := p.settings.Config
	timeout := config.RuntimeRequestTimeout.Duration
	tracer := p.deps.Observability.TracerProvider
	streaming := utilfeature.DefaultFeatureGate.Enabled(features.CRIListStreaming)

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
	driverAttempts = 3
	driverPause    = 2 * time.Second
)

// adoptCgroupDriver takes the cgroup driver from the runtime (KEP-4033), since the two must agree. A runtime that
// cannot say leaves the one in the configuration.
func (p *process) adoptCgroupDriver(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	answer, err := runtimeConfig(ctx, p.deps.Runtime.Runtime)
	if status.Code(err) == codes.Unimplemented {
		legacyregistry.MustRegister(kubeletmetrics.CRILosingSupport)
		kubeletmetrics.CRILosingSupport.WithLabelValues("1.37.0").Inc()
		logger.Info("CRI implementation should be updated to support RuntimeConfig. Falling back to using cgroupDriver " +
			"from kubelet config.")
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask the container runtime: %w", err)
	}
	if answer.GetLinux() == nil {
		return nil // its default would read as systemd
	}
	switch driver := answer.GetLinux().GetCgroupDriver(); driver {
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

// runtimeConfig asks a few times, because the runtime may still be starting.
func runtimeConfig(
	ctx context.Context, runtime runtimeConfigurer,
) (answer *runtimeapi.RuntimeConfigResponse, err error) {
	for attempt := range driverAttempts {
		if attempt > 0 {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(driverPause):
			}
		}
		answer, err = runtime.RuntimeConfig(ctx)
		if err == nil || status.Code(err) == codes.Unimplemented {
			return answer, err
		}
	}
	return nil, err
}
