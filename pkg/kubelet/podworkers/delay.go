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

// delay returns how long to wait before a pod is looked at again; err is how its last operation failed, nil if it did not.
func (w *Workers) delay(after podlifecycle.Delay, err error) time.Duration {
	switch {
	case after == podlifecycle.DelayNone:
		return 0
	case after == podlifecycle.DelayResync:
		return wait.Jitter(w.cfg.ResyncInterval, jitterFactor)
	case err != nil && strings.Contains(err.Error(), networkNotReady):
		return wait.Jitter(networkNotReadyPeriod, jitterFactor)
	}
	backoff := w.cfg.BackoffPeriod
	if until, set := kubecontainer.MinBackoffExpiration(err); set {
		// The error knows until when nothing can change. Waiting beyond that would add to the back-off.
		backoff = min(max(until.Sub(w.cfg.Clock.Now()), 0), w.cfg.ResyncInterval)
	}
	return wait.Jitter(min(backoff, w.cfg.ResyncInterval), jitterFactor)
}
