package publish

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	firstBackOff = time.Second
	maxBackOff   = 5 * time.Minute
	// blockedRetry is how often is tried what only somebody who changes the cluster can make succeed.
	blockedRetry = 5 * time.Minute
	// nodeRetry is how often the UID of the Node is asked for.
	nodeRetry = time.Second
)

// Errors of an attempt that do not come from the API server.
var (
	errNodeUnknown = errors.New("the UID of the Node is not known yet")
	errConflicts   = errors.New("the object was changed by others in each attempt to change it")
	errUnrecorded  = errors.New("the record of taints could not be stored")
	errNoRecord    = errors.New("the record of taints could not be read")
)

// problem is a kind of error. Its value is that of the label result.
type problem string

const (
	noProblem problem = ""
	// noKind: the API server does not have the kind.
	noKind problem = "no_kind"
	// forbidden: the agent has no right.
	forbidden problem = "forbidden"
	// refused: the API server rejects the content. The same request cannot succeed.
	refused problem = "refused"
	// conflict: the object has changed meanwhile.
	conflict problem = "conflict"
	// unrecorded: the record of taints could not be read or stored.
	unrecorded problem = "unrecorded"
	// failed is any other error.
	failed problem = "error"
)

// problemOf returns the kind of an error of one request or of an attempt.
func problemOf(err error) problem {
	switch {
	case err == nil:
		return noProblem
	case isNoKind(err):
		return noKind
	case apierrors.IsForbidden(err):
		return forbidden
	case apierrors.IsConflict(err), errors.Is(err, errConflicts):
		return conflict
	case errors.Is(err, errUnrecorded), errors.Is(err, errNoRecord):
		return unrecorded
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err),
		apierrors.IsUnsupportedMediaType(err):
		return refused
	}
	return failed
}

// isNoKind reports whether an error says that the API server does not serve the resource: its answer is not a Status
// then, unlike that for an object that does not exist.
func isNoKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// isAbsent reports whether an error says that the object does not exist.
func isAbsent(err error) bool { return apierrors.IsNotFound(err) && !isNoKind(err) }

// rejected reports whether the API server has certainly not changed the object.
func rejected(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500
}

// endsAttempt reports whether no other request of the attempt can succeed either.
func endsAttempt(err error) bool {
	switch problemOf(err) {
	case noProblem, refused, forbidden, conflict, unrecorded:
		return errors.Is(err, context.Canceled)
	default:
		return true
	}
}

// delayAfter returns the time until the next attempt, after a number of failed ones in a row: 1 s, doubled with each up
// to five minutes, from which up to a fifth is subtracted at random (0 to 1), so that the agents of many nodes do not
// repeat their requests at the same time. It is at least what the API server asks for by Retry-After, as far as that is
// at most five minutes, and up to a fifth more. Without the kind or the right it is at last five minutes, and up to a
// twentieth more. It is not so from the first failure on: an API server that has just started answers that there is
// no such kind or right until it has read the definitions and roles.
func delayAfter(failures int, err error, random float64) time.Duration {
	d := firstBackOff
	for range failures - 1 {
		if d = 2 * d; d >= maxBackOff {
			break
		}
	}
	d = min(d, maxBackOff)
	if p := problemOf(err); d == maxBackOff && (p == noKind || p == forbidden) {
		return blockedRetry + time.Duration(random*float64(blockedRetry)/20)
	}
	d -= time.Duration(random * float64(d) / 5)
	if seconds, ok := suggestedDelay(err); ok {
		asked := min(time.Duration(seconds)*time.Second, maxBackOff)
		d = max(d, asked+time.Duration(random*float64(asked)/5))
	}
	return d
}

// suggestedDelay returns the Retry-After of an error, in seconds.
func suggestedDelay(err error) (seconds int, ok bool) {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0, false
	}
	if details := status.Status().Details; details != nil && details.RetryAfterSeconds > 0 {
		return int(details.RetryAfterSeconds), true
	}
	return 0, false
}
