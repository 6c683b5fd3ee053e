package pluginhost

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

const (
	// maxAnswerBytes is the greatest size of an answer.
	maxAnswerBytes = 4 << 20
	// maxHeaderBytes is the greatest size of the headers and of the trailers of an answer, which have the text of an
	// error. gRPC's default is 16 MiB.
	maxHeaderBytes = 64 << 10
	// windowBytes is how much a plugin may send that is not read yet, for a call and for a connection, until a call reads
	// a larger message. By default gRPC raises it to 16 MiB for a plugin that sends fast.
	windowBytes = 64 << 10
	// The time until a connection that was lost, or that could not be made, is tried again doubles from minRedial to
	// maxRedial.
	minRedial = time.Second
	maxRedial = 30 * time.Second
)

// errUnverified is the result of a call over a connection that is not verified. Nothing of the call is sent.
var errUnverified = status.Error(codes.Unauthenticated, "the process at the socket is not verified")

// connect returns a client of the socket, which dials when it is first used and when the connection was lost. While
// guarded returns true, calls are made over verified connections only.
func connect(
	path string, dial func(context.Context, string) (net.Conn, error), guarded func() bool,
) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///plugin",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, path) }),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(identities{insecure.NewCredentials()}),
		grpc.WithPerRPCCredentials(guard(guarded)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: minRedial, Multiplier: 2, Jitter: 0.2, MaxDelay: maxRedial},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDisableServiceConfig(),
		grpc.WithMaxHeaderListSize(maxHeaderBytes),
		grpc.WithStaticStreamWindowSize(windowBytes), grpc.WithStaticConnWindowSize(windowBytes),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes), grpc.WaitForReady(false)),
	)
}

// connection is one connection to a process. gRPC has it as the information about the peer.
type connection struct {
	credentials.CommonAuthInfo
	verified atomic.Bool
}

// AuthType is the name of this kind of information.
func (*connection) AuthType() string { return "plugin" }

// identities make a connection value for each connection, without encryption.
type identities struct {
	credentials.TransportCredentials
}

func (identities) ClientHandshake(
	_ context.Context, _ string, conn net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	insecurely := credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}
	return conn, &connection{CommonAuthInfo: insecurely}, nil
}

func (i identities) Clone() credentials.TransportCredentials {
	return identities{i.TransportCredentials.Clone()}
}

// attempt is what the guard finds out about one call. gRPC may try a call at another connection if it could not send it
// at the first one; conn is the last.
type attempt struct {
	// verifies is true for the call by which the connection is verified.
	verifies bool
	conn     atomic.Pointer[connection]
	// rejected is true if the guard has rejected the call.
	rejected atomic.Bool
}

type attemptKey struct{}

func (a *attempt) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, attemptKey{}, a)
}

// guard rejects calls over connections that are not verified, while it returns true. As credentials of all calls, gRPC
// asks it when it has chosen the connection of a call, before anything of the call is sent.
type guard func() bool

var _ credentials.PerRPCCredentials = guard(nil)

func (g guard) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	info, _ := credentials.RequestInfoFromContext(ctx)
	conn, _ := info.AuthInfo.(*connection)
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	if a == nil {
		a = &attempt{}
	}
	a.conn.Store(conn)
	a.rejected.Store(g() && !a.verifies && (conn == nil || !conn.verified.Load()))
	if a.rejected.Load() {
		return nil, errUnverified
	}
	return map[string]string{}, nil
}

// RequireTransportSecurity returns false: the calls are those of a Unix socket.
func (guard) RequireTransportSecurity() bool { return false }
