package kubelet

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
)

// reportAnswers makes the services report to eviction each answer to a request that a collection of figures makes, so
// that a runtime which is slow is told apart from one that hangs.
func reportAnswers(s RuntimeServices) RuntimeServices {
	return RuntimeServices{Runtime: answeringRuntime{s.Runtime}, Images: answeringImages{s.Images}}
}

// answered passes on the result of a request. A request that was given up, or did not reach the runtime, has no answer.
func answered[T any](ctx context.Context, result T, err error) (T, error) {
	if !unanswered(err) {
		eviction.RuntimeAnswered(ctx)
	}
	return result, err
}

func unanswered(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return true
	default:
		return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	}
}

// answeringRuntime has the requests of package stats and of the runtime manager's GetPods and GetContainerStatus.
type answeringRuntime struct{ internalapi.RuntimeService }

func (r answeringRuntime) ListContainers(
	ctx context.Context, filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	result, err := r.RuntimeService.ListContainers(ctx, filter)
	return answered(ctx, result, err)
}

func (r answeringRuntime) ContainerStatus(
	ctx context.Context, id string, verbose bool,
) (*runtimeapi.ContainerStatusResponse, error) {
	result, err := r.RuntimeService.ContainerStatus(ctx, id, verbose)
	return answered(ctx, result, err)
}

func (r answeringRuntime) ListPodSandbox(
	ctx context.Context, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	result, err := r.RuntimeService.ListPodSandbox(ctx, filter)
	return answered(ctx, result, err)
}

func (r answeringRuntime) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	result, err := r.RuntimeService.ListContainerStats(ctx, filter)
	return answered(ctx, result, err)
}

func (r answeringRuntime) ListPodSandboxStats(
	ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter,
) ([]*runtimeapi.PodSandboxStats, error) {
	result, err := r.RuntimeService.ListPodSandboxStats(ctx, filter)
	return answered(ctx, result, err)
}

// answeringImages has the requests of package stats and of the runtime manager's ListImages.
type answeringImages struct {
	internalapi.ImageManagerService
}

func (i answeringImages) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	result, err := i.ImageManagerService.ListImages(ctx, filter)
	return answered(ctx, result, err)
}

func (i answeringImages) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	result, err := i.ImageManagerService.ImageFsInfo(ctx)
	return answered(ctx, result, err)
}
