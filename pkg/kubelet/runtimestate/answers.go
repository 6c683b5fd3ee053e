package runtimestate

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ReportRuntimeAnswers returns a runtime service that calls report for each answer to a request that reads state, with
// the context of the request, so that a slow runtime can be distinguished from one that hangs. These are the requests
// of stock's package stats, and of GetPods and GetContainerStatus of the runtime manager. report must not block, and
// may be called concurrently.
func ReportRuntimeAnswers(
	service internalapi.RuntimeService, report func(context.Context),
) internalapi.RuntimeService {
	return answeringRuntime{service, report}
}

// ReportImageAnswers is ReportRuntimeAnswers for the image service: the requests of stock's package stats, and of the
// runtime manager's ListImages.
func ReportImageAnswers(
	service internalapi.ImageManagerService, report func(context.Context),
) internalapi.ImageManagerService {
	return answeringImages{service, report}
}

// isAnswer returns false for the error of a request that was canceled, timed out, or did not reach the runtime.
func isAnswer(err error) bool {
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Canceled, codes.Unavailable:
		return false
	default:
		return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
	}
}

// answer reports an answer and returns it.
func answer[T any](ctx context.Context, report func(context.Context), result T, err error) (T, error) {
	if isAnswer(err) {
		report(ctx)
	}
	return result, err
}

type answeringRuntime struct {
	internalapi.RuntimeService
	report func(context.Context)
}

func (r answeringRuntime) ListContainers(
	ctx context.Context, filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	result, err := r.RuntimeService.ListContainers(ctx, filter)
	return answer(ctx, r.report, result, err)
}

func (r answeringRuntime) ContainerStatus(
	ctx context.Context, id string, verbose bool,
) (*runtimeapi.ContainerStatusResponse, error) {
	result, err := r.RuntimeService.ContainerStatus(ctx, id, verbose)
	return answer(ctx, r.report, result, err)
}

func (r answeringRuntime) ListPodSandbox(
	ctx context.Context, filter *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	result, err := r.RuntimeService.ListPodSandbox(ctx, filter)
	return answer(ctx, r.report, result, err)
}

func (r answeringRuntime) ListContainerStats(
	ctx context.Context, filter *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	result, err := r.RuntimeService.ListContainerStats(ctx, filter)
	return answer(ctx, r.report, result, err)
}

func (r answeringRuntime) ListPodSandboxStats(
	ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter,
) ([]*runtimeapi.PodSandboxStats, error) {
	result, err := r.RuntimeService.ListPodSandboxStats(ctx, filter)
	return answer(ctx, r.report, result, err)
}

type answeringImages struct {
	internalapi.ImageManagerService
	report func(context.Context)
}

func (i answeringImages) ListImages(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	result, err := i.ImageManagerService.ListImages(ctx, filter)
	return answer(ctx, i.report, result, err)
}

func (i answeringImages) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	result, err := i.ImageManagerService.ImageFsInfo(ctx)
	return answer(ctx, i.report, result, err)
}
