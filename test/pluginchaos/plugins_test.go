package pluginchaos

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

// roles start the plugins of a process in a directory. The result ends them.
var roles = map[string]func(directory string, out *output) (stop func()){
	"honest": honestPlugins,
	"chaos":  chaos,
	"idle":   idlePlugins,
}

// registrar answers stock's plugin manager.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name string
	// notified is called, if it is set, before the status of the registration is accepted.
	notified func(context.Context)
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: pluginType, Name: r.name, SupportedVersions: []string{"v1alpha1"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(
	ctx context.Context, _ *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if r.notified != nil {
		r.notified(ctx)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// instance is a plugin at a socket.
type instance struct {
	listener *net.UnixListener
	server   *grpc.Server
	served   sync.WaitGroup
}

// serve serves a plugin at a new socket. wrap, if it is set, replaces the listener.
func serve(
	socket string, r *registrar, p v1alpha1.EvictionPluginServer, wrap func(net.Listener) net.Listener,
) *instance {
	_ = os.Remove(socket)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		panic(err)
	}
	i := &instance{listener: listener, server: grpc.NewServer()}
	registration.RegisterRegistrationServer(i.server, r)
	v1alpha1.RegisterEvictionPluginServer(i.server, p)
	var served net.Listener = listener
	if wrap != nil {
		served = wrap(listener)
	}
	i.served.Go(func() { _ = i.server.Serve(served) })
	return i
}

// stop ends the plugin and removes its socket. Handlers may still run.
func (i *instance) stop() {
	go i.server.Stop()
	i.served.Wait()
	_ = i.listener.Close()
}

// die ends the plugin and leaves its socket, as a process that is killed does.
func (i *instance) die() {
	i.listener.SetUnlinkOnClose(false)
	i.stop()
}

func socketOf(directory, name string) string { return filepath.Join(directory, name+".sock") }

// repeat calls f again and again until stop is closed, and waits for it. A call should end soon after that.
func repeat(stop <-chan struct{}, running *sync.WaitGroup, f func(round int)) {
	running.Go(func() {
		for round := 0; !isClosed(stop); round++ {
			f(round)
		}
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pause returns after a time, or sooner when stop is closed.
func pause(stop <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-stop:
	case <-timer.C:
	}
}

// chaos starts the hanging, crashing and lying plugins. Their process gets little CPU time when there is not enough, so
// that a test does not measure how they compete for it with honest plugins.
func chaos(directory string, out *output) func() {
	// The process is its group. PRIO_PROCESS is for one thread: setpriority(2).
	if err := unix.Setpriority(unix.PRIO_PGRP, 0, 19); err != nil {
		panic(err)
	}
	stop, running := make(chan struct{}), &sync.WaitGroup{}
	hangingPlugins(directory, out, stop, running)
	crashingPlugins(directory, out, stop, running)
	lyingPlugins(directory, out, stop, running)
	return func() {
		close(stop)
		running.Wait()
	}
}
