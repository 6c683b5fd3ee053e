package plugin

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/plugincalls"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// scripted is a plugin whose answers are functions; nil ones answer with the zero value.
type scripted struct {
	demand    func(ctx context.Context, v *View) (*arbiter.Demand, error)
	threshold func(ctx context.Context, v *View) (*arbiter.Threshold, error)
	top       func(ctx context.Context, v *View, q arbiter.Question) (*arbiter.Reply, error)

	mu    sync.Mutex
	calls map[string]int
}

func (p *scripted) count(method string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls = map[string]int{}
	}
	p.calls[method]++
}

func (p *scripted) called(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

func (p *scripted) EvictPods(ctx context.Context, v *View) (*arbiter.Demand, error) {
	p.count("EvictPods")
	if p.demand == nil {
		return nil, nil
	}
	return p.demand(ctx, v)
}

func (p *scripted) ThresholdMet(ctx context.Context, v *View) (*arbiter.Threshold, error) {
	p.count("ThresholdMet")
	if p.threshold == nil {
		return nil, nil
	}
	return p.threshold(ctx, v)
}

func (p *scripted) TopEvictionPods(ctx context.Context, v *View, q arbiter.Question) (*arbiter.Reply, error) {
	p.count("TopEvictionPods")
	if p.top == nil {
		return nil, nil
	}
	return p.top(ctx, v, q)
}

// forcing asks for pods by force, hanging answers nothing until its call ends, met has a hard threshold with a grace.
func forcing(uids ...types.UID) *scripted {
	return &scripted{demand: func(context.Context, *View) (*arbiter.Demand, error) {
		d := &arbiter.Demand{}
		for _, uid := range uids {
			d.Pods = append(d.Pods, arbiter.PodDemand{UID: uid, Reason: "asked", Force: true})
		}
		return d, nil
	}}
}

func hanging() *scripted {
	return &scripted{demand: func(ctx context.Context, _ *View) (*arbiter.Demand, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
}

func met(grace time.Duration, uids ...types.UID) *scripted {
	return &scripted{
		threshold: func(context.Context, *View) (*arbiter.Threshold, error) {
			t := arbiter.Threshold{Kind: arbiter.Hard, Scope: "memory", Target: 2, Observed: 1, LessThan: true, Grace: grace}
			return &t, nil
		},
		top: func(context.Context, *View, arbiter.Question) (*arbiter.Reply, error) {
			return &arbiter.Reply{Pods: uids}, nil
		},
	}
}

// rig is a driver with a node of its own, in a bubble.
type rig struct {
	*Driver
	t       *testing.T
	config  Config
	changed chan struct{}
	cancel  context.CancelFunc
	ended   chan struct{}

	mu       sync.Mutex
	pods     []*v1.Pod
	inFlight []eviction.InFlightPod
	released []types.UID
	remote   []Remote
	woken    int
	reported int
}

func options() Options {
	return Options{
		Remote: Selector{"*"}, InTree: Selector{"*"}, Period: 5 * time.Second, CallTimeout: 5 * time.Second,
		Rules: arbiter.Rules{
			Burst: 3, MaxInFlight: 10, MaxGracePeriodSeconds: 600, ConditionTransitionPeriod: 5 * time.Minute,
		},
	}
}

func pod(uid types.UID, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "name-" + string(uid), Namespace: "ns", UID: uid}}
	for _, f := range change {
		f(p)
	}
	return p
}

func newRig(t *testing.T, o Options, inTree map[string]Plugin, pods ...*v1.Pod) *rig {
	r := &rig{t: t, pods: pods, changed: make(chan struct{}, 1), ended: make(chan struct{})}
	locked := func(f func()) { r.mu.Lock(); defer r.mu.Unlock(); f() }
	r.config = Config{
		Options: o, InTree: inTree, RemoteChanged: r.changed, Clock: clock.RealClock{},
		Remote: func() (list []Remote) { locked(func() { list = slices.Clone(r.remote) }); return list },
		Pods:   func() (list []*v1.Pod) { locked(func() { list = slices.Clone(r.pods) }); return list },
		InFlight: func() (list []eviction.InFlightPod) {
			locked(func() { list = slices.Clone(r.inFlight) })
			return list
		},
		Wake:              func() { locked(func() { r.woken++ }) },
		ConditionsChanged: func() { locked(func() { r.reported++ }) },
		Recorder:          &record.FakeRecorder{},
	}
	d, err := New(r.config)
	if err != nil {
		t.Fatal(err)
	}
	r.Driver = d
	return r
}

func (r *rig) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel = cancel
	go func() { defer close(r.ended); r.Run(ctx) }()
	synctest.Wait()
}

// stop ends the driver and fails the test unless it ends at once.
func (r *rig) stop() {
	r.cancel()
	synctest.Wait()
	select {
	case <-r.ended:
	default:
		r.t.Error("Run has not returned")
	}
}

// set changes what the driver sees of the node.
func (r *rig) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *rig) setRemote(list ...Remote) {
	r.set(func() { r.remote = list })
	plugincalls.Notify(r.changed)
	synctest.Wait()
}

// pass lets time go by.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) requested() string {
	var list []string
	for _, q := range r.Requests() {
		list = append(list, string(q.UID))
	}
	return strings.Join(list, " ")
}

// text is the text of some values, with a space between any two.
func text(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }

func (r *rig) expect(what, got, want string) {
	r.t.Helper()
	if got != want {
		r.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// bubble runs a test in a bubble, which fails if a goroutine is left at its end.
func bubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }
