package reporter

import (
	"context"
	"errors"
	"fmt"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// Plugin is one reporter plugin, in the agent or behind a socket. The two calls are those of Katalyst's protocol
// reporterplugin.v1alpha1. A plugin may implement only one of them. The driver makes each of them once at a time, both
// beside each other. Contents must not be modified once they are returned or sent.
//
// An answer beyond the limits of merge.Validate is refused whole. What else is wrong with it is a matter of the merge.
type Plugin interface {
	// GetReportContent returns everything that the plugin reports. ctx ends after the call time-out; the call must return
	// soon after that.
	GetReportContent(ctx context.Context) ([]merge.Content, error)
	// ListAndWatch sends everything that the plugin reports, at once and after each change. It returns when the stream has
	// ended, and soon after the end of ctx. It does not call send after it has returned, nor twice at a time.
	ListAndWatch(ctx context.Context, send func([]merge.Content)) error
}

// Errors of plugins have these among their causes when they are more than failures. Any other error is one that the
// plugin has returned.
var (
	// ErrUnimplemented is returned by a call that the plugin does not implement. The stream is not opened again then.
	ErrUnimplemented = errors.New("the plugin does not implement the call")
	// ErrNotCalled is returned if the plugin was not called, so that nothing follows about it.
	ErrNotCalled = errors.New("the plugin was not called")
	// ErrSuspended is returned if the plugin was not called because earlier calls have failed. Only an open stream
	// confirms its answer then. It wraps ErrNotCalled.
	ErrSuspended = fmt.Errorf("%w: calls are suspended", ErrNotCalled)
	// ErrUnreachable is returned if the plugin has not responded.
	ErrUnreachable = errors.New("the plugin does not respond")
	// ErrTooLarge is returned if the answer is larger than what is read. It is refused.
	ErrTooLarge = errors.New("the answer is too large")
)
