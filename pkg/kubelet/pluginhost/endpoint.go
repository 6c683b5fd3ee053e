package pluginhost

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"
)

var (
	// ErrSuspended is the result of a call that is not made because the calls before it have failed.
	ErrSuspended = errors.New("calls of the plugin are suspended after failures")
	// ErrRemoved is the result of a call of a plugin that is not registered or not enabled any more.
	ErrRemoved = errors.New("the plugin has been removed")
	// ErrUnverified is the result of a call that is not made because the connection must be verified before, and the time
	// of the next verification has not come.
	ErrUnverified = errors.New("the connection to the plugin is not verified, and was tried a short time ago")
)

const (
	// failuresBeforeSuspension is the number of failures in a row after which calls are suspended.
	failuresBeforeSuspension = 5
	// The time until the next attempt doubles from minSuspension to maxSuspension.
	minSuspension = 30 * time.Second
	maxSuspension = 5 * time.Minute
)

// Endpoint is one plugin at one socket. It is safe for concurrent use.
type Endpoint struct {
	key
	registered time.Time
	clock      clock.PassiveClock
	conn       *grpc.ClientConn
	// client makes calls with conn.
	client *verifiedClient
	// turn has one place, which the call under way takes.
	turn chan struct{}

	mu      sync.Mutex
	removed bool
	health  Health
}

// Health is what is known from the calls of a plugin. Times are the zero time, and the latency is 0, if there is none.
type Health struct {
	// Failures is the number of calls that have failed since the last success.
	Failures int
	// LastError is the error of the last call that failed, shortened to 512 bytes, and LastErrorTime the end of that call.
	LastError     string
	LastErrorTime time.Time
	// LastSuccess is when the last successful call ended.
	LastSuccess time.Time
	// Latency is how long the last call took, successful or not.
	Latency time.Duration
	// SuspendedUntil is when the next attempt may be made; zero unless calls are suspended.
	SuspendedUntil time.Time
}

func newEndpoint(
	k key, path string, dial func(context.Context, string) (net.Conn, error), v *verification, c clock.PassiveClock,
) (*Endpoint, error) {
	conn, err := connect(path, dial, v.required)
	if err != nil {
		return nil, err
	}
	return &Endpoint{
		key: k, registered: c.Now(), clock: c, conn: conn, turn: make(chan struct{}, 1),
		client: &verifiedClient{conn: conn, verification: v},
	}, nil
}

// Name returns the name of the plugin.
func (e *Endpoint) Name() string { return e.name }

// Socket returns the path of the socket, as the plugin gave it.
func (e *Endpoint) Socket() string { return e.socket }

// Registered returns when the endpoint was made: when the plugin registered, or later when it was enabled again.
func (e *Endpoint) Registered() time.Time { return e.registered }

// Health returns what is known from the calls so far.
func (e *Endpoint) Health() Health {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.health
}

// Call calls the plugin: it runs call with a connection, and with a context that ends after the time-out or when ctx
// ends. One call is under way at a time; another one waits for it, within its own time-out. Call returns the error of
// call, and the error of the context if it ended while waiting.
//
// A plugin whose last five calls have failed is suspended: one attempt may be made after 30 s, then after twice the
// time, at most after 5 min; all other calls return ErrSuspended. A success ends it. The code Unimplemented is an
// answer and no failure. A call that failed after ctx was cancelled does not count; one that exceeded the deadline of
// ctx does. After the plugin has been removed, Call returns ErrRemoved.
//
// Under the authentication Token a new connection is verified before its first call. If that fails, the call has failed
// and is not made. The same is true if the call exceeds its time-out meanwhile; the verification continues, for at most
// 5 s, and a later call needs no other one if it succeeds. A verification follows the one before after 1 s at the
// earliest, then after twice the time, at most 30 s, until there is none for a minute; a call that needs one sooner
// returns ErrUnverified and does not count.
func (e *Endpoint) Call(
	ctx context.Context, timeout time.Duration, call func(context.Context, grpc.ClientConnInterface) error,
) error {
	callCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-callCtx.Done():
		return callCtx.Err()
	}
	begin := e.clock.Now()
	if err := e.mayCall(begin); err != nil {
		return err
	}
	err := call(callCtx, e.client)
	if errors.Is(err, ErrUnverified) {
		return err
	}
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) {
		e.record(err, begin)
	}
	return err
}

// Stream calls the plugin beside Call: it runs stream with a connection and returns its error. The call may last for as
// long as ctx and the registration do. It does not count for the health of the plugin, and is made while calls are
// suspended: the caller limits how often. After the plugin has been removed, Stream returns ErrRemoved.
func (e *Endpoint) Stream(ctx context.Context, stream func(context.Context, grpc.ClientConnInterface) error) error {
	e.mu.Lock()
	removed := e.removed
	e.mu.Unlock()
	if removed {
		return ErrRemoved
	}
	return stream(ctx, e.client)
}

// mayCall returns why no call may be made.
func (e *Endpoint) mayCall(now time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.removed:
		return ErrRemoved
	case now.Before(e.health.SuspendedUntil):
		return ErrSuspended
	default:
		return nil
	}
}

func (e *Endpoint) record(err error, begin time.Time) {
	end := e.clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.health.Latency = end.Sub(begin)
	if err == nil || status.Code(err) == codes.Unimplemented {
		e.health.Failures, e.health.LastSuccess, e.health.SuspendedUntil = 0, end, time.Time{}
		return
	}
	e.health.Failures++
	e.health.LastError, e.health.LastErrorTime = shorten(err.Error(), maxErrorText), end
	if e.health.Failures >= failuresBeforeSuspension {
		e.health.SuspendedUntil = end.Add(suspension(e.health.Failures))
	}
}

// suspension returns the time until the next attempt after so many failures in a row.
func suspension(failures int) time.Duration {
	d := minSuspension
	for range failures - failuresBeforeSuspension {
		if d *= 2; d >= maxSuspension {
			return maxSuspension
		}
	}
	return d
}

// remove prevents later calls. disconnect, which follows, ends the one that is under way.
func (e *Endpoint) remove() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removed = true
}

// disconnect closes the connection, and ends its verification. That takes seconds if the plugin does not read. It is
// called once.
func (e *Endpoint) disconnect() {
	e.client.verification.end()
	_ = e.conn.Close()
}
