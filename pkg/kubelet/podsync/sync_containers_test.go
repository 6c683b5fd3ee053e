package podsync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// slowStarter is a runtime in which a start takes some time, or until its context ends.
type slowStarter struct {
	runtimeOf
	takes time.Duration
}

func (h slowStarter) SyncPod(
	ctx context.Context, _ *v1.Pod, _ *kubecontainer.PodStatus, _ []v1.Secret, _ *flowcontrol.Backoff, _ bool,
) kubecontainer.PodSyncResult {
	timer := time.NewTimer(h.takes)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return kubecontainer.PodSyncResult{SyncError: ctx.Err()}
	case <-timer.C:
		return kubecontainer.PodSyncResult{}
	}
}

// A start may continue for a limited time after the termination is requested, so that a hook that hangs does not block
// the termination.
func TestTerminationLimitsAHangingStart(t *testing.T) {
	const requested = time.Minute
	for _, test := range []struct {
		name   string
		takes  time.Duration
		want   time.Duration
		failed bool
	}{
		{"ended before", requested / 2, requested / 2, false},
		{"in progress", requested + startGrace/2, requested + startGrace/2, false},
		{"hangs", time.Hour, requested + startGrace, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				cfg := w.config()
				cfg.Runtime = slowStarter{runtimeOf{w}, test.takes}
				ctx, cancel := context.WithTimeout(t.Context(), requested)
				defer cancel()
				began := time.Now()
				request := SyncRequest{UpdateType: kubetypes.SyncPodCreate, Pod: testPod(), Status: w.inRuntime}
				_, err := New(cfg).Sync(ctx, request)
				if took := time.Since(began); took != test.want || (err != nil) != test.failed {
					t.Errorf("after %v: %v, want %v", took, err, test.want)
				}
			})
		})
	}
}
