package pluginchaos

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/apis/evictionplugin/v1alpha1"
)

// crashing crashes in the midst of each third call.
type crashing struct {
	v1alpha1.UnimplementedEvictionPluginServer
	crash func()

	mu    sync.Mutex
	calls int
}

func (p *crashing) called() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls++; p.calls%3 == 0 && p.crash != nil {
		p.crash()
	}
}

func (p *crashing) GetEvictPods(
	context.Context, *v1alpha1.GetEvictPodsRequest,
) (*v1alpha1.GetEvictPodsResponse, error) {
	p.called()
	return &v1alpha1.GetEvictPodsResponse{}, nil
}

func (p *crashing) ThresholdMet(
	context.Context, *v1alpha1.GetThresholdMetRequest,
) (*v1alpha1.ThresholdMetResponse, error) {
	p.called()
	return &v1alpha1.ThresholdMetResponse{}, nil
}

// crashingPlugins live for some tenths of a second. Two leave their sockets behind, two crash in the midst of a call.
func crashingPlugins(directory string, out *output, stop <-chan struct{}, running *sync.WaitGroup) {
	for i := range plugins {
		name := fmt.Sprintf("crashing-%d", i)
		repeat(stop, running, func(round int) {
			crashed := make(chan struct{})
			p := &crashing{}
			if i >= 3 {
				p.crash = sync.OnceFunc(func() { close(crashed) })
			}
			instance := serve(socketOf(directory, name), &registrar{name: name}, p, nil)
			life := time.Duration(300+150*i+70*(round%5)) * time.Millisecond
			if i >= 3 {
				life *= 4
			}
			wait(stop, crashed, life)
			out.did("crash")
			if i%2 == 1 {
				instance.die()
			} else {
				instance.stop()
			}
			pause(stop, time.Duration(100+50*i)*time.Millisecond)
			if isClosed(stop) {
				_ = os.Remove(socketOf(directory, name))
			}
		})
	}
}

// wait returns after a time, or sooner when one of the channels is closed.
func wait(a, b <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-a:
	case <-b:
	case <-timer.C:
	}
}
