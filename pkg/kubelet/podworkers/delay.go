package podworkers

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// networkNotReady stands in errors of pods that wait for the node's network, which is expected soon.
const networkNotReady = "network is not ready"

// delay returns how long to wait before a pod is looked at again; backoff is the time before a failed operation is tried
// again.
func (w *Workers) delay(after podlifecycle.Delay, backoff time.Duration) time.Duration {
	switch after {
	case podlifecycle.DelayNone:
		return 0
	case podlifecycle.DelayResync:
		backoff = w.cfg.ResyncInterval
	case podlifecycle.DelayBackoff:
	}
	return wait.Jitter(backoff, jitterFactor)
}

// backoff returns the time before an operation is tried again; err is how it failed, nil if it could not begin. An error
// is read whole and may be long, so it must not be passed under a lock.
func (w *Workers) backoff(err error) time.Duration {
	if err != nil && strings.Contains(err.Error(), networkNotReady) {
		return networkNotReadyPeriod
	}
	backoff := w.cfg.BackoffPeriod
	if until, set := kubecontainer.MinBackoffExpiration(err); set {
		// The error knows until when nothing can change. Waiting beyond that would add to the back-off.
		backoff = max(until.Sub(w.cfg.Clock.Now()), 0)
	}
	return min(backoff, w.cfg.ResyncInterval)
}
