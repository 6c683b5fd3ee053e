package sources

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	node "github.com/plimsoll-project/plimsoll/pkg/apis/node/v1alpha1"
)

const (
	// refreshAfter is how old what was read of the CustomNodeResource may be until it is read again, absentFor how long it
	// is not read again when there is none, or when the node may not read it.
	refreshAfter = 15 * time.Second
	absentFor    = 5 * time.Minute
	// usedFor is how old it may be and still count, when it cannot be read again.
	usedFor = time.Minute
	// readTimeout is how long a reading may take.
	readTimeout = 2 * time.Second
)

// ErrStale is the error when it is unknown what the CustomNodeResource has, or whether there is one.
var ErrStale = errors.New("the CustomNodeResource has not been read for a minute")

// CustomNodeResource reads the CustomNodeResource of a node. It is safe for concurrent use.
type CustomNodeResource struct {
	client dynamic.ResourceInterface
	name   string
	clock  clock.PassiveClock

	mu sync.Mutex
	// tried is when it was last tried, read when it was last read, zero if there is none or that is unknown.
	tried, read time.Time
	// absent: the API server has said that there is none, or that the node may not read it, and it was not read since.
	absent bool
	// pause is how long it is not tried again.
	pause time.Duration
	last  v1.ResourceList
	err   error
}

// NewCustomNodeResource returns a reader. client is nil without an API server: then there is no CustomNodeResource.
func NewCustomNodeResource(
	client dynamic.Interface, resource schema.GroupVersionResource, name string, clock clock.PassiveClock,
) *CustomNodeResource {
	r := &CustomNodeResource{name: name, clock: clock}
	if client != nil {
		r.client = client.Resource(resource)
	}
	return r
}

// Allocatable returns what is allocatable of the whole node, nil if there is no CustomNodeResource or the node may not
// read it. The result is at most a minute old; it fails with ErrStale if that is not possible, or before the API server
// has answered for the first time. It must not be modified.
func (r *CustomNodeResource) Allocatable(ctx context.Context) (v1.ResourceList, error) {
	if r.client == nil {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.clock.Now(); r.tried.IsZero() || now.Sub(r.tried).Abs() >= r.pause {
		r.tried = now
		r.refresh(ctx)
	}
	if !r.absent && (r.read.IsZero() || r.clock.Since(r.read) > usedFor) {
		return nil, fmt.Errorf("%w: %w", ErrStale, r.err)
	}
	return r.last, nil
}

// refresh reads the object. It asks for any version that the API server has at hand.
func (r *CustomNodeResource) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	r.pause = refreshAfter
	live, err := r.client.Get(ctx, r.name, metav1.GetOptions{ResourceVersion: "0"})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		r.pause, r.absent, r.read, r.last, r.err = absentFor, true, time.Time{}, nil, nil
		return
	case err != nil:
		r.err = err
		return
	}
	var object node.CustomNodeResource
	if r.err = runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &object); r.err != nil {
		return
	}
	r.absent, r.read, r.last = false, r.clock.Now(), nil
	if list := object.Status.Resources.Allocatable; list != nil {
		r.last = *list
	}
}
