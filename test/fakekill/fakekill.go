// Package fakekill replaces the pod workers in tests of parts that stop pods.
package fakekill

import (
	"context"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
)

// Waiting makes a podkill.Func of a function that returns when the pod has stopped, or with an error when it has not
// stopped in time. A request is refused when its context has ended, else answered with podkill.Hastened for a pod that
// has been deleted and with podkill.Begun for all others. stop runs in a goroutine of its own.
func Waiting(stop func(ctx context.Context, r podkill.Request) error) podkill.Func {
	return func(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
		if err := ctx.Err(); err != nil {
			return podkill.Refused, podkill.Ended(podkill.Ending{Err: err})
		}
		ended := make(chan podkill.Ending, 1)
		go func() { ended <- ending(ctx, stop(ctx, r)) }()
		if r.Pod.DeletionTimestamp != nil {
			return podkill.Hastened, ended
		}
		return podkill.Begun, ended
	}
}

func ending(ctx context.Context, err error) podkill.Ending {
	switch {
	case err == nil:
		return podkill.Ending{Outcome: podkill.Stopped}
	case ctx.Err() != nil:
		return podkill.Ending{Outcome: podkill.Failed, Err: err}
	}
	return podkill.Ending{Outcome: podkill.Overdue, Err: err}
}
