package killer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// retryAfter is the time to the next call if the API server names none, maxRetryAfter the longest that it may name.
	retryAfter, maxRetryAfter = 5 * time.Second, 30 * time.Second
	// recheck is the time between two checks of whether a pod that waits is still to be evicted.
	recheck = time.Second
	// minPatience is the shortest time after the first call until which an attempt goes on.
	minPatience = 10 * time.Second
	// maxGraceSeconds (a hundred years) limits grace periods: the API allows more than a time.Duration can hold.
	maxGraceSeconds = 100 * 365 * 24 * 60 * 60
	// holdRejected is the time after which a call that the API server has rejected is made once more.
	holdRejected = 30 * time.Second
	// holdAccepted is the time within which the agent gets the deletion of a pod that the API server has accepted.
	holdAccepted = 30 * time.Second
)

var (
	errNotRequested = errors.New("no plugin requests the eviction by this killer any more")
	errMoreGrace    = errors.New("plugins request the eviction with a longer grace period now")
	errTerminating  = errors.New("the pod is terminating already")
)

// attempt is the eviction of one pod, with as many calls as it takes.
type attempt struct {
	*Killer

	request eviction.APIKill
	key     key
	// deadline is when the attempt gives up; zero before the first call. due is when the next call may be made.
	deadline, due time.Time
	// uncertain: a call has ended without an answer, or with an error of the server. It may have had its effect.
	uncertain bool
	// blocked: a call was not accepted. reported: Blocked was called.
	blocked, reported bool
}

// run makes calls until the attempt has ended.
func (a *attempt) run(ctx context.Context) eviction.APIEnding {
	for {
		ending, err := a.callOnce(ctx)
		if ending != nil {
			return *ending
		}
		if ending := a.wait(ctx, err); ending != nil {
			return *ending
		}
	}
}

// callOnce waits for its turn and makes one call, unless the pod is not to be evicted any more. It returns the
// ending of the attempt, or the error after which another call has to be made.
func (a *attempt) callOnce(ctx context.Context) (*eviction.APIEnding, error) {
	select {
	case a.calls <- struct{}{}:
		defer func() { <-a.calls }()
	case <-ctx.Done():
		return withdrawn(ctx.Err()), nil
	}
	if ending := a.check(ctx); ending != nil {
		return ending, nil
	}
	if a.deadline.IsZero() {
		a.deadline = a.config.Clock.Now().Add(patience(a.request.GracePeriodSeconds))
	}
	err := a.call(ctx)
	return a.ended(ctx, err), err
}

// patience returns for how long an attempt goes on after its first call: as long as the end of a pod with this grace
// period may take.
func patience(graceSeconds int64) time.Duration {
	grace := time.Duration(min(graceSeconds, maxGraceSeconds)) * time.Second
	return max(minPatience, grace+grace/2)
}

// check returns the ending of an attempt whose pod is not to be evicted any more, nil for others. It precedes each
// call, also the first: a plugin may have withdrawn its request while the pod was waiting (E11), or may leave the
// pod more time now.
func (a *attempt) check(ctx context.Context) *eviction.APIEnding {
	if err := ctx.Err(); err != nil {
		return withdrawn(err)
	}
	pod, active := a.request.Current()
	switch {
	case !active:
		return &eviction.APIEnding{Outcome: eviction.APIGone}
	case pod.DeletionTimestamp != nil && a.uncertain:
		return &eviction.APIEnding{Outcome: eviction.APIAccepted}
	case pod.DeletionTimestamp != nil:
		return &eviction.APIEnding{Outcome: eviction.APIGone, Err: errTerminating}
	}
	if err := a.requested(pod); err != nil {
		return withdrawn(err)
	}
	return nil
}

func withdrawn(why error) *eviction.APIEnding {
	return &eviction.APIEnding{Outcome: eviction.APIWithdrawn, Err: why}
}

// requested returns an error unless plugins request the eviction of the pod by this killer, and with no more grace
// than this attempt leaves it.
func (a *attempt) requested(pod *v1.Pod) error {
	requests := a.config.Requests()
	i := slices.IndexFunc(requests, func(r snapshot.Request) bool { return r.UID == a.key.uid })
	if i < 0 || requests[i].Killer != a.key.killer {
		return errNotRequested
	}
	own := int64(v1.DefaultTerminationGracePeriodSeconds)
	if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
		own = *seconds
	}
	if requests[i].Grace(own) > a.request.GracePeriodSeconds {
		return errMoreGrace
	}
	return nil
}

// ended returns the ending of the attempt after a call, nil if another call has to be made.
func (a *attempt) ended(ctx context.Context, err error) *eviction.APIEnding {
	switch {
	case err == nil:
		return &eviction.APIEnding{Outcome: eviction.APIAccepted}
	case ctx.Err() != nil:
		return withdrawn(ctx.Err())
	case apierrors.IsNotFound(err), apierrors.IsConflict(err) && a.replaced(ctx):
		return &eviction.APIEnding{Outcome: eviction.APIGone, Err: err}
	case isFinal(err):
		return &eviction.APIEnding{Outcome: eviction.APIRejected, Err: explained(err, a.key.killer)}
	}
	return nil
}

// wait waits until the next call is due. It returns the ending if the pod is not to be evicted any more, or if the
// time for the attempt is over.
func (a *attempt) wait(ctx context.Context, err error) *eviction.APIEnding {
	now := a.config.Clock.Now()
	a.due = now.Add(pause(err))
	if !a.blocked {
		a.blocked = true
		a.set(a.key, record{underWay: true, blocked: true})
		a.config.Changed()
	}
	a.uncertain = a.uncertain || mayHaveEffect(err)
	if apierrors.IsTooManyRequests(err) && !a.reported {
		a.reported = true
		count(a.key.killer, resultBlocked)
		a.request.Blocked(described(err))
	}
	for ; now.Before(a.due); now = a.config.Clock.Now() {
		if !now.Before(a.deadline) {
			return &eviction.APIEnding{Outcome: eviction.APIGaveUp, Err: fmt.Errorf("not accepted within %v: %w",
				patience(a.request.GracePeriodSeconds), described(err))}
		}
		timer := a.config.Clock.NewTimer(min(recheck, a.due.Sub(now), a.deadline.Sub(now)))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
		}
		if ending := a.check(ctx); ending != nil {
			return ending
		}
	}
	return nil
}

// heldUntil returns until when the pod counts as submitted after the attempt. A new attempt does not come earlier
// than the next call would have, so that a request that is withdrawn and made again makes no more calls than one
// that stays.
func (a *attempt) heldUntil(o eviction.APIOutcome) time.Time {
	now := a.config.Clock.Now()
	switch o {
	case eviction.APIAccepted, eviction.APIGone:
		return now.Add(holdAccepted)
	case eviction.APIRejected:
		return now.Add(holdRejected)
	case eviction.APIGaveUp:
		if next := now.Add(retryAfter); a.due.Before(next) {
			return next
		}
	case eviction.APIWithdrawn:
	}
	return a.due
}

// blockedAfter reports whether the pod counts as blocked while it is held.
func (a *attempt) blockedAfter(o eviction.APIOutcome) bool {
	switch o {
	case eviction.APIGaveUp, eviction.APIRejected:
		return true
	case eviction.APIWithdrawn:
		return a.blocked
	case eviction.APIAccepted, eviction.APIGone:
	}
	return false
}

// explained adds to the error of a call that is rejected what an operator may have to change.
func explained(err error, killer snapshot.Killer) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	permission := "create on pods/eviction"
	if killer == snapshot.DeleteAPI {
		permission = "delete on pods"
	}
	return fmt.Errorf("the API server forbids this node to evict the pod by %s, which needs the permission to %s: %w",
		killer, permission, err)
}
