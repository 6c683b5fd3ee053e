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

// hangs is a runtime with a start that takes some time, or the time until its context ends.
type hangs struct {
	runtimeOf
	takes time.Duration
}

func (h hangs) SyncPod(ctx context.Context, _ *v1.Pod, _ *kubecontainer.PodStatus, _ []v1.Secret, _ *flowcontrol.Backoff, _ bool) kubecontainer.PodSyncResult {
	timer := time.NewTimer(h.takes)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return kubecontainer.PodSyncResult{SyncError: ctx.Err()}
	case <-timer.C:
		return kubecontainer.PodSyncResult{}
	}
}

// A start is finished when the pod is to go, but a hook that hangs does not hold the pod for ever.
func TestStartThatHangsEndsWithThePod(t *testing.T) {
	const requested = time.Minute
	for _, test := range []struct {
		name   string
		takes  time.Duration
		want   time.Duration
		failed bool
	}{
		{"that is done before", requested / 2, requested / 2, false},
		{"under way", requested + startGrace/2, requested + startGrace/2, false},
		{"that hangs", time.Hour, requested + startGrace, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				cfg := w.config()
				cfg.Runtime = hangs{runtimeOf{w}, test.takes}
				ctx, cancel := context.WithTimeout(t.Context(), requested)
				defer cancel()
				began := time.Now()
				_, err := New(cfg).Sync(ctx, SyncRequest{UpdateType: kubetypes.SyncPodCreate, Pod: testPod(), Status: w.inRuntime})
				if took := time.Since(began); took != test.want || (err != nil) != test.failed {
					t.Errorf("after %v: %v, want %v", took, err, test.want)
				}
			})
		})
	}
}
