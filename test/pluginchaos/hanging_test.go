package pluginchaos

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

// hanging delays its answers in wait.
type hanging struct {
	v1alpha1.UnimplementedEvictionPluginServer
	wait func(context.Context)
}

func (p *hanging) GetEvictPods(
	ctx context.Context, _ *v1alpha1.GetEvictPodsRequest,
) (*v1alpha1.GetEvictPodsResponse, error) {
	p.wait(ctx)
	return &v1alpha1.GetEvictPodsResponse{}, ctx.Err()
}

func (p *hanging) ThresholdMet(
	ctx context.Context, _ *v1alpha1.GetThresholdMetRequest,
) (*v1alpha1.ThresholdMetResponse, error) {
	p.wait(ctx)
	return &v1alpha1.ThresholdMetResponse{}, ctx.Err()
}

// silentListener accepts connections and passes none on, once it is silent.
type silentListener struct {
	net.Listener
	silent atomic.Bool
}

func (l *silentListener) Accept() (net.Conn, error) {
	var held []net.Conn
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			for _, c := range held {
				_ = c.Close()
			}
			return nil, err
		}
		if !l.silent.Load() {
			return conn, nil
		}
		held = append(held, conn)
	}
}

// hangingPlugins: one waits for the end of the call, one ignores that, one does not accept the status of its
// registration, one accepts connections and does not serve them, one answers shortly before the time-out. Each
// registers anew every 4 s, so that its calls are not suspended for long.
func hangingPlugins(directory string, out *output, stop <-chan struct{}, running *sync.WaitGroup) {
	forContext := func(ctx context.Context) { out.did("hang"); <-ctx.Done() }
	forever := func(context.Context) { out.did("hang"); <-stop }
	late := func(ctx context.Context) {
		out.did("hang")
		pause(ctx.Done(), callTimeout*9/10)
	}
	for i, wait := range []func(context.Context){forContext, forever, forContext, forContext, late} {
		name := fmt.Sprintf("hanging-%d", i)
		repeat(stop, running, func(int) {
			r := &registrar{name: name}
			if i == 2 {
				r.notified = forContext
			}
			var wrap func(net.Listener) net.Listener
			if i == 3 {
				wrap = func(l net.Listener) net.Listener {
					s := &silentListener{Listener: l}
					r.notified = func(context.Context) { out.did("be silent"); s.silent.Store(true) }
					return s
				}
			}
			p := serve(socketOf(directory, name), r, &hanging{wait: wait}, wrap)
			pause(stop, 4*time.Second)
			p.stop()
			pause(stop, 100*time.Millisecond)
		})
	}
}
