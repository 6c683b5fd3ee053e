package kubelet

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	critest "k8s.io/cri-api/pkg/apis/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
)

// requestsOfCollections are those of which statistics are made.
func requestsOfCollections(s RuntimeServices) map[string]func(context.Context) error {
	cri, images := s.Runtime, s.Images
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

// TestRequestsOfCollectionsReportAnswers: an error is an answer unless the request was given up or the runtime was
// not reached.
func TestRequestsOfCollectionsReportAnswers(t *testing.T) {
	runtime, images := critest.NewFakeRuntimeService(), critest.NewFakeImageService()
	for name, request := range requestsOfCollections(reportAnswers(RuntimeServices{Runtime: runtime, Images: images})) {
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
			if err := request(eviction.WithAnswers(t.Context(), func() { answers++ })); !errors.Is(err, failure) {
				t.Errorf("%s: error %v, want %v", name, err, failure)
			}
			if answers != want {
				t.Errorf("%s with error %v: %d answers, want %d", name, failure, answers, want)
			}
		}
	}
}

// TestTheAgentsRuntimeReportsAnswers: what statistics and reclaim ask is asked of the services that report.
func TestTheAgentsRuntimeReportsAnswers(t *testing.T) {
	b, err := assemble(t.Context(), dependenciesFor(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	for what, request := range map[string]func(context.Context) error{
		"images": func(ctx context.Context) error { _, err := b.runtime.manager.ListImages(ctx); return err },
		"pods":   func(ctx context.Context) error { _, err := b.runtime.manager.GetPods(ctx, true); return err },
		"disks":  func(ctx context.Context) error { _, _, err := b.stats.provider.ImageFsStats(ctx); return err },
	} {
		answers := 0
		err := request(eviction.WithAnswers(t.Context(), func() { answers++ }))
		if answers == 0 {
			t.Errorf("%s: no answer was reported; %v", what, err)
		}
	}
}
