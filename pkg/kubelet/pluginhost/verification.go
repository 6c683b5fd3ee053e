package pluginhost

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
)

// verification verifies the connections to one socket. It is safe for concurrent use.
type verification struct {
	// required returns whether calls may be made over verified connections only.
	required func() bool
	// check returns why the process at the other end of the connection is refused.
	check func(context.Context, grpc.ClientConnInterface) *refusal
	clock clock.PassiveClock

	mu sync.Mutex
	// last is when the last verification began, and delay the time from then until the next one may begin.
	last  time.Time
	delay time.Duration
	// running is the verification under way, nil if there is none.
	running *verifying
	closed  bool
	work    sync.WaitGroup
}

// verifying is one verification that is under way.
type verifying struct {
	cancel context.CancelFunc
	// done is closed when it has ended, and err is set before.
	done chan struct{}
	err  error
}

// verify verifies the connection that a call would be made over now. It returns when ctx ends; the verification has the
// time of its own that one at the registration has, so that a call with a short time-out does not end it in vain.
func (v *verification) verify(ctx context.Context, conn grpc.ClientConnInterface) error {
	running := v.start(ctx, conn)
	if running == nil {
		return ErrUnverified
	}
	select {
	case <-running.done:
		return running.err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// start returns the verification under way, or begins one. It returns nil if none may begin.
func (v *verification) start(ctx context.Context, conn grpc.ClientConnInterface) *verifying {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.running != nil {
		return v.running
	}
	if v.closed || !v.begin(v.clock.Now()) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), validationTimeout)
	running := &verifying{cancel: cancel, done: make(chan struct{})}
	v.running = running
	v.work.Go(func() {
		defer cancel()
		if refused := v.run(ctx, conn); refused != nil {
			running.err = refused
		}
		v.mu.Lock()
		v.running = nil
		v.mu.Unlock()
		close(running.done)
	})
	return running
}

// run has the connection verified that a call would be made over now. It returns why the process is refused.
func (v *verification) run(ctx context.Context, conn grpc.ClientConnInterface) *refusal {
	a := &attempt{verifies: true}
	if refused := v.check(ctx, observed{conn, a}); refused != nil {
		return refused
	}
	if c := a.conn.Load(); c != nil {
		c.verified.Store(true)
	}
	return nil
}

// end ends the verification under way and waits for it. None begins afterwards.
func (v *verification) end() {
	v.mu.Lock()
	v.closed = true
	if v.running != nil {
		v.running.cancel()
	}
	v.mu.Unlock()
	v.work.Wait()
}

// begin returns whether a verification may begin, and records its time. A plugin whose connections end again and again
// does not cause more requests to the API server than this permits. The caller holds mu.
func (v *verification) begin(now time.Time) bool {
	passed := now.Sub(v.last)
	switch {
	case v.last.IsZero() || passed >= 2*maxRedial:
		v.delay = minRedial
	case passed < v.delay:
		return false
	default:
		v.delay = min(2*v.delay, maxRedial)
	}
	v.last = now
	return true
}

// verifiedClient makes calls over verified connections. A call for which gRPC chooses a connection that is not verified
// is rejected by the guard, and made again after the verification.
type verifiedClient struct {
	conn         *grpc.ClientConn
	verification *verification
}

var _ grpc.ClientConnInterface = (*verifiedClient)(nil)

// Invoke makes a call with one answer.
func (c *verifiedClient) Invoke(
	ctx context.Context, method string, request, answer any, opts ...grpc.CallOption,
) error {
	return c.verified(ctx, func(conn grpc.ClientConnInterface) error {
		return conn.Invoke(ctx, method, request, answer, opts...)
	})
}

// NewStream begins a call with any number of messages.
func (c *verifiedClient) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (stream grpc.ClientStream, err error) {
	err = c.verified(ctx, func(conn grpc.ClientConnInterface) error {
		stream, err = conn.NewStream(ctx, desc, method, opts...)
		return err
	})
	return stream, err
}

// verified makes a call, and after a verification once more if it was rejected.
func (c *verifiedClient) verified(ctx context.Context, call func(grpc.ClientConnInterface) error) error {
	a := &attempt{}
	err := call(observed{c.conn, a})
	if !a.rejected.Load() {
		return err
	}
	if err := c.verification.verify(ctx, c.conn); err != nil {
		return err
	}
	return call(observed{c.conn, &attempt{}})
}

// observed is a client whose calls are recorded in the attempt.
type observed struct {
	grpc.ClientConnInterface
	attempt *attempt
}

// Invoke makes a call with one answer.
func (o observed) Invoke(ctx context.Context, method string, request, answer any, opts ...grpc.CallOption) error {
	return o.ClientConnInterface.Invoke(o.attempt.in(ctx), method, request, answer, opts...)
}

// NewStream begins a call with any number of messages.
func (o observed) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return o.ClientConnInterface.NewStream(o.attempt.in(ctx), desc, method, opts...)
}
