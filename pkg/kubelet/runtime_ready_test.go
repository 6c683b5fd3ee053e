package kubelet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// A runtime that answers late is asked again, and no longer than the agent lives.
func TestRunningPodsAreListedUntilTheRuntimeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		late := func(context.Context) ([]*kubecontainer.Pod, error) {
			if asked++; asked < 4 {
				return nil, errors.New("not yet")
			}
			return []*kubecontainer.Pod{{ID: "a"}}, nil
		}
		if pods, listed := untilListed(t.Context(), late); !listed || len(pods) != 1 || pods[0].ID != "a" {
			t.Errorf("listed %t: %v", listed, pods)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		never := func(context.Context) ([]*kubecontainer.Pod, error) { return nil, errors.New("never") }
		if pods, listed := untilListed(ctx, never); listed {
			t.Errorf("listed %v without an answer", pods)
		}
	})
}
