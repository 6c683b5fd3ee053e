package runtimestate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	critest "k8s.io/cri-api/pkg/apis/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/runtimestate"
)

// requests returns the requests with which stats are collected.
func requests(
	cri internalapi.RuntimeService, images internalapi.ImageManagerService,
) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"ListContainers": func(ctx context.Context) error { _, err := cri.ListContainers(ctx, nil); return err },
		"ContainerStatus": func(ctx context.Context) error {
			_, err := cri.ContainerStatus(ctx, "none", false)
			return err
		},
		"ListPodSandbox": func(ctx context.Context) error { _, err := cri.ListPodSandbox(ctx, nil); return err },
		"ListContainerStats": func(ctx context.Context) error {
			_, err := cri.ListContainerStats(ctx, nil)
			return err
		},
		"ListPodSandboxStats": func(ctx context.Context) error {
			_, err := cri.ListPodSandboxStats(ctx, nil)
			return err
		},
		"ListImages":  func(ctx context.Context) error { _, err := images.ListImages(ctx, nil); return err },
		"ImageFsInfo": func(ctx context.Context) error { _, err := images.ImageFsInfo(ctx); return err },
	}
}

// An error is an answer unless the request was canceled, timed out, or did not reach the runtime.
func TestReportAnswers(t *testing.T) {
	runtime, images := critest.NewFakeRuntimeService(), critest.NewFakeImageService()
	type key struct{}
	count := func(ctx context.Context) { *ctx.Value(key{}).(*int)++ }
	reporting := requests(
		runtimestate.ReportRuntimeAnswers(runtime, count), runtimestate.ReportImageAnswers(images, count))
	for name, request := range reporting {
		for failure, want := range map[error]int{
			errors.New("something"):                      1,
			status.Error(codes.NotFound, "gone"):         1,
			status.Error(codes.DeadlineExceeded, "late"): 0,
			status.Error(codes.Unavailable, "down"):      0,
			status.Error(codes.Canceled, "given up"):     0,
			context.DeadlineExceeded:                     0,
			fmt.Errorf("a stream: %w", context.Canceled): 0,
		} {
			runtime.InjectError(name, failure)
			images.InjectError(name, failure)
			answers := 0
			if err := request(context.WithValue(t.Context(), key{}, &answers)); !errors.Is(err, failure) {
				t.Errorf("%s: error %v, want %v", name, err, failure)
			}
			if answers != want {
				t.Errorf("%s with error %v: %d answers, want %d", name, failure, answers, want)
			}
		}
	}
}
