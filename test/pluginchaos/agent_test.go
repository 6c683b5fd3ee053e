package pluginchaos

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/pluginmanager"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/remote"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
)

const (
	pluginType = "EvictionPlugin"
	// inTree is the name of a plugin in the agent.
	inTree = "memory-growth"
	// maxGraceSeconds limits the grace periods that plugins request.
	maxGraceSeconds = 600
	callTimeout     = time.Second
)

// agent has the parts of the kubelet that eviction plugins pass through.
type agent struct {
	directory string
	node      *node
	host      *pluginhost.Host
	encoder   remote.Encoder
	driver    *plugin.Driver
	manager   atomic.Pointer[eviction.Manager]
	memory    memoryRounds
	running   sync.WaitGroup
	stop      context.CancelFunc
}

// options have no bound of pods in a round, so that plugins do not wait for each other by the rules.
func options(period time.Duration) plugin.Options {
	return plugin.Options{
		Remote: plugin.Selector{"*"}, Period: period, CallTimeout: callTimeout,
		Rules: arbiter.Rules{Burst: -1, MaxInFlight: 100, MaxGracePeriodSeconds: maxGraceSeconds,
			ConditionTransitionPeriod: time.Minute},
		Skip: arbiter.Skip{AnnotationKeys: []string{skipKey}}, Authentication: v1alpha1.SocketOwner,
	}
}

// startAgent runs an agent until the end of the test at most, with stock's plugin manager.
func startAgent(t testing.TB, period time.Duration) *agent {
	t.Helper()
	return startParts(t, period, func(ctx context.Context, a *agent) {
		registry := pluginmanager.NewPluginManager(a.directory, &record.FakeRecorder{})
		registry.AddHandler(pluginType, a.host)
		registry.Run(ctx, nil, ctx.Done())
	})
}

// startParts runs an agent until the end of the test at most. register registers plugins until ctx ends.
func startParts(t testing.TB, period time.Duration, register func(context.Context, *agent)) *agent {
	t.Helper()
	directory, err := os.MkdirTemp("", "chaos") // A short path: those of sockets have at most 107 bytes.
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{directory: directory, node: newNode(), memory: memoryRounds{list: map[string]string{}}}
	a.makeHost()
	a.makeDriver(t, period)
	a.makeManager(t)
	ctx, stop := context.WithCancel(context.Background())
	a.stop = sync.OnceFunc(func() {
		stop()
		a.running.Wait()
		a.host.Close()
		_ = os.RemoveAll(directory)
	})
	t.Cleanup(a.stop)
	a.running.Go(func() { register(ctx, a) })
	a.running.Go(func() { a.driver.Run(ctx) })
	a.running.Go(func() { a.manager.Load().Run(ctx) })
	return a
}

func (a *agent) makeHost() {
	a.host = pluginhost.New(pluginhost.Config{
		Type: pluginType, Version: "v1alpha1", Directories: []string{a.directory},
		InTree:         func(name string) bool { return name == inTree },
		Enabled:        func(string) bool { return true },
		Authentication: func() pluginhost.Authentication { return pluginhost.SocketOwner },
		Owner:          uint32(os.Geteuid()),
		Clock:          clock.RealClock{}, Recorder: &record.FakeRecorder{}, Node: &v1.ObjectReference{Kind: "Node"},
	})
}

func (a *agent) makeDriver(t testing.TB, period time.Duration) {
	driver, err := plugin.New(plugin.Config{
		Options: options(period), Remote: a.remote, RemoteChanged: a.host.Changed(),
		Pods:              a.node.active,
		InFlight:          func() []eviction.InFlightPod { return a.manager.Load().InFlight() },
		Wake:              func() { a.manager.Load().Wake() },
		ConditionsChanged: func() {}, Recorder: &record.FakeRecorder{}, Clock: clock.RealClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	a.driver = driver
}

func (a *agent) remote() (list []plugin.Remote) {
	for _, e := range a.host.Endpoints() {
		call := func(ctx context.Context, f func(context.Context, grpc.ClientConnInterface) error) error {
			return e.Call(ctx, callTimeout, f)
		}
		list = append(list, plugin.Remote{
			Name: e.Name(), Socket: e.Socket(), Plugin: remote.New(e.Name(), call, &a.encoder), Registered: e.Registered(),
			Health: func() debugv1alpha1.PluginHealth { return debugv1alpha1.PluginHealth{Failures: e.Health().Failures} },
		})
	}
	return list
}

func (a *agent) makeManager(t testing.TB) {
	thresholds, err := settings.ParseThresholds(settings.ThresholdConfig{
		Hard: map[string]string{"memory.available": "2Gi"}})
	if err != nil {
		t.Fatal(err)
	}
	collector, err := collect.New(collect.Sources{Summary: a.node, DiskInfo: a.node})
	if err != nil {
		t.Fatal(err)
	}
	n := a.node
	manager, err := eviction.New(eviction.Config{
		Collector: collector, Kill: n.kill(), ActivePods: n.active, PodByUID: n.byUID, PodStopped: n.gone,
		PodCleanedUp: n.gone, Reclaimer: n, Recorder: &record.FakeRecorder{}, NodeRef: &v1.ObjectReference{Kind: "Node"},
		Clock:   clock.RealClock{},
		Kubelet: settings.Kubelet{Thresholds: thresholds, PressureTransitionPeriod: 100 * time.Millisecond},
		Memory:  n, Requests: a.driver.Requests, Sinks: []eviction.Sink{a.driver, &a.memory},
	})
	if err != nil {
		t.Fatal(err)
	}
	a.manager.Store(manager)
}

// registered returns a check that so many plugins are registered whose names have a prefix.
func (a *agent) registered(prefix string, want int) func() error {
	return func() error {
		n := 0
		for _, e := range a.host.Endpoints() {
			if strings.HasPrefix(e.Name(), prefix) {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("%d plugins %s are registered, want %d", n, prefix, want)
		}
		return nil
	}
}
