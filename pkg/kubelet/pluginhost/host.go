package pluginhost

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager/cache"
	"k8s.io/utils/clock"
)

// maxPlugins is the greatest number of registrations of one type, those that are not enabled included.
const maxPlugins = 32

// maxRefusals is how many refusals are remembered, so that each has one event.
const maxRefusals = 128

// Authentication is how a plugin proves its identity.
type Authentication string

const (
	// SocketOwner requires that the process that listens at the socket runs as Config.Owner (SO_PEERCRED). It is checked
	// at each connection.
	SocketOwner Authentication = "SocketOwner"
	// Token requires that the plugin returns a token of a user who may register it. It is verified at the registration,
	// and at each connection before its first call. The process may run as any user.
	Token Authentication = "Token"
	// None accepts all plugins.
	None Authentication = "None"
)

// Config has the settings of a Host. All fields are required, except Owner, Logger, Token, Review and Probe.
//
// InTree, Enabled and Authentication are called by several goroutines, also while the Host holds its lock: they return
// soon and do not call the Host.
type Config struct {
	// Type is the type of plugin, as in its answer to GetInfo.
	Type string
	// Version is the version of the protocol that a plugin must support.
	Version string
	// Directories are the absolute paths of the directories in which, or below which, the sockets of plugins are.
	Directories []string
	// InTree returns whether a name belongs to a plugin in the tree. Its results do not change.
	InTree func(name string) bool
	// Enabled returns whether the plugin may be called. When its results have changed, Recheck must be called.
	Enabled func(name string) bool
	// Authentication returns how plugins prove their identity. When its result has changed, Recheck must be called.
	Authentication func() Authentication
	// Owner is the UID of processes that may listen under SocketOwner; root's outside tests.
	Owner uint32
	// Token calls the plugin at the other end of the connection once and returns its token. Without Token and Review,
	// the authentication Token refuses all plugins.
	Token func(context.Context, grpc.ClientConnInterface) (string, error)
	// Review verifies that the token belongs to a user who may register the plugin of that name. An error is
	// ErrInvalidToken or ErrNotPermitted, or it means that the token could not be verified. It is part of events and of
	// pages. Review returns when the context ends, and may be called by several goroutines at a time.
	Review func(ctx context.Context, token, plugin string) error
	// Probe calls the plugin at the other end of the connection, and returns an error if it does not answer. It is part of
	// the validation of a plugin, whose last step it is: a plugin is registered only after a probe without error. The
	// error is part of events and of pages: it must not have texts of the plugin, which might have its token. Probe
	// returns when the context ends, and may be called by several goroutines at a time. Without Probe no plugin is probed.
	Probe func(context.Context, grpc.ClientConnInterface) error
	// Clock is used for the health of plugins and for the suspension of calls.
	Clock clock.PassiveClock
	// Recorder writes the events of refusals about Node.
	Recorder record.EventRecorder
	Node     *v1.ObjectReference
	Logger   klog.Logger
}

// Host registers plugins of one type and has their endpoints. It is safe for concurrent use.
type Host struct {
	cfg     Config
	changed chan struct{}
	// disconnecting are the connections that are being closed: those of endpoints that were removed, and of validations.
	disconnecting sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// authentication is the one that the connections of the endpoints were made with.
	authentication Authentication
	// registrations are in the order in which they were made, each with a key of its own.
	registrations []*registration
	// refused are plugins that were refused and are not registered now, in the order of their last refusals. Each key is
	// there once.
	refused []Refusal
	// events limits the events of refusals.
	events flowcontrol.PassiveRateLimiter
}

var _ cache.PluginHandler = (*Host)(nil)

// key identifies a registration.
type key struct{ name, socket string }

// registration is a plugin that was validated and registered.
type registration struct {
	key
	// path is that of the socket without symbolic links, and file the socket, at the time of the registration. Calls use
	// this path: a link that is changed later could lead to a process that is refused, and the plugin would not be called.
	path string
	file fs.FileInfo
	// endpoint is nil while the plugin is not enabled.
	endpoint *Endpoint
	// times is how often the plugin is registered: processes at other sockets may name this one as their endpoint.
	times int
}

// New returns a Host without plugins. It starts nothing.
func New(cfg Config) *Host {
	registerMetrics()
	return &Host{
		cfg: cfg, changed: make(chan struct{}, 1), authentication: cfg.Authentication(),
		events: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(
			float32(1/refusalEventPeriod.Seconds()), maxRefusalEvents, cfg.Clock),
	}
}

// Endpoints returns the enabled plugins in the order of their names, each with the endpoint that was registered last.
func (h *Host) Endpoints() []*Endpoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := map[string]*Endpoint{}
	for _, r := range h.registrations {
		if r.endpoint != nil {
			last[r.name] = r.endpoint
		}
	}
	endpoints := make([]*Endpoint, 0, len(last))
	for _, name := range slices.Sorted(maps.Keys(last)) {
		endpoints = append(endpoints, last[name])
	}
	return endpoints
}

// Changed returns a channel that receives a value after Endpoints may have changed. Changes that follow each other
// before the value is read are one value. The channel is for one reader.
func (h *Host) Changed() <-chan struct{} { return h.changed }

// RegisterPlugin adds the plugin, which must have been validated. An error is the reason why it is refused. The
// versions and the time-out are not used. It is for stock's plugin manager.
func (h *Host) RegisterPlugin(name, endpoint string, _ []string, _ *time.Duration) error {
	k := key{name, filepath.Clean(endpoint)}
	if err := h.register(k); err != nil {
		return h.refuse(k, err)
	}
	h.cfg.Logger.Info("Plugin registered", "type", h.cfg.Type, "plugin", name, "socket", k.socket)
	return nil
}

func (h *Host) register(k key) *refusal {
	path, file, refused := h.socketFile(k.socket)
	if refused != nil {
		return refused
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if refused := h.full(k); refused != nil {
		return refused
	}
	h.forgetRefusal(k)
	r := &registration{key: k, path: path, file: file, times: 1}
	if i := h.index(k); i >= 0 {
		before := h.registrations[i]
		if sameSocket(before.file, file) {
			before.times++
			return nil
		}
		r.times += before.times
	}
	if err := h.open(r); err != nil {
		return &refusal{invalidEndpoint, err.Error()}
	}
	h.remove(func(old *registration) bool {
		return old.key == k || old.socket == k.socket && !sameSocket(old.file, file)
	})
	h.registrations = append(h.registrations, r)
	h.notify()
	return nil
}

// DeRegisterPlugin removes the plugin at this endpoint, unless its socket still exists and it was registered more
// often. After its removal the endpoint is not called any more; a call that is under way ends. It is for stock's plugin
// manager.
func (h *Host) DeRegisterPlugin(name, endpoint string) {
	k := key{name, filepath.Clean(endpoint)}
	_, file, refused := h.socketFile(k.socket)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(func(r *registration) bool {
		if r.key != k {
			return false
		}
		r.times--
		return r.times == 0 || refused != nil || !sameSocket(r.file, file)
	})
	h.notify()
	h.cfg.Logger.Info("Plugin deregistered", "type", h.cfg.Type, "plugin", name, "socket", k.socket)
}

// Recheck closes the endpoints of plugins that are not enabled any more, and makes endpoints for registered plugins
// that are enabled again. When the authentication has changed, all connections are made anew.
func (h *Host) Recheck() {
	h.mu.Lock()
	defer h.mu.Unlock()
	authentication := h.cfg.Authentication()
	for _, r := range h.registrations {
		if authentication != h.authentication || !h.cfg.Enabled(r.name) {
			h.close(r)
		}
		if err := h.open(r); err != nil {
			h.cfg.Logger.Error(err, "Plugin cannot be enabled", "type", h.cfg.Type, "plugin", r.name, "socket", r.socket)
		}
	}
	h.authentication = authentication
	h.notify()
}

// Close removes all plugins, and waits until their connections are closed. No plugin can be registered afterwards.
func (h *Host) Close() {
	h.mu.Lock()
	h.closed = true
	h.remove(func(*registration) bool { return true })
	h.notify()
	h.mu.Unlock()
	h.disconnecting.Wait()
}

// open makes the endpoint of a registration that has none, if the plugin is enabled.
func (h *Host) open(r *registration) (err error) {
	if r.endpoint != nil || !h.cfg.Enabled(r.name) {
		return nil
	}
	r.endpoint, err = newEndpoint(r.key, r.path, h.dial, h.verification(r.name), h.cfg.Clock)
	return err
}

// verification returns that of a plugin's connections.
func (h *Host) verification(plugin string) *verification {
	return &verification{
		required: h.tokenRequired, clock: h.cfg.Clock,
		check: func(ctx context.Context, conn grpc.ClientConnInterface) *refusal {
			return h.cfg.checkToken(ctx, conn, plugin)
		},
	}
}

func (h *Host) tokenRequired() bool { return h.cfg.Authentication() == Token }

func (h *Host) remove(which func(*registration) bool) {
	h.registrations = slices.DeleteFunc(h.registrations, func(r *registration) bool {
		removed := which(r)
		if removed {
			h.close(r)
		}
		return removed
	})
}

func (h *Host) notify() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// index returns the place of a registration, -1 if there is none.
func (h *Host) index(k key) int {
	return slices.IndexFunc(h.registrations, func(r *registration) bool { return r.key == k })
}

// full returns why there is no place for one more registration.
func (h *Host) full(k key) *refusal {
	if h.closed {
		return &refusal{stopping, "the kubelet is stopping"}
	}
	if h.index(k) < 0 && len(h.registrations) >= maxPlugins {
		return &refusal{tooMany, fmt.Sprintf("%d plugins of this type are registered, more are not allowed", maxPlugins)}
	}
	return nil
}

// close ends the endpoint of the registration, if it has one. It does not wait until the connection is closed: the
// plugin may delay that for seconds, while the caller holds the lock.
func (h *Host) close(r *registration) {
	if e := r.endpoint; e != nil {
		r.endpoint = nil
		e.remove()
		h.disconnecting.Go(e.disconnect)
	}
}

// sameSocket returns whether both are the same socket. File systems use the inode of a removed file again, therefore
// the time of its creation, which is that of its modification, is compared as well.
func sameSocket(a, b fs.FileInfo) bool { return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) }
