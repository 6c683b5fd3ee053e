package podworkers

import (
	"errors"
	"fmt"
	"testing"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

func TestDelay(t *testing.T) {
	now := time.Unix(1000, 0)
	until := func(d time.Duration) error {
		return kubecontainer.NewBackoffError(errors.New("backing off"), now.Add(d))
	}
	for _, test := range []struct {
		name  string
		after podlifecycle.Delay
		err   error
		want  time.Duration
	}{
		{"phase change", podlifecycle.DelayNone, nil, 0},
		{"well", podlifecycle.DelayResync, nil, resync},
		{"waiting for a name", podlifecycle.DelayBackoff, nil, backoff},
		{"failed", podlifecycle.DelayBackoff, errors.New("no"), backoff},
		{"network", podlifecycle.DelayBackoff, errors.New("network is not ready: cni config uninitialized"), time.Second},
		{"back-off", podlifecycle.DelayBackoff, fmt.Errorf("sync: %w", until(20*time.Second)), 20 * time.Second},
		{"earliest of several", podlifecycle.DelayBackoff, utilerrors.NewAggregate([]error{until(30 * time.Second), until(3 * time.Second)}), 3 * time.Second},
		{"back-off is over", podlifecycle.DelayBackoff, until(-time.Minute), 0},
		{"back-off beyond the resync", podlifecycle.DelayBackoff, until(time.Hour), resync},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := New(Config{ResyncInterval: resync, BackoffPeriod: backoff, Clock: clocktesting.NewFakeClock(now)})
			for range 50 {
				if got := w.delay(test.after, w.backoff(test.err)); got < test.want || got > test.want+test.want/2 {
					t.Fatalf("%v, want %v and at most half more", got, test.want)
				}
			}
		})
	}
}
