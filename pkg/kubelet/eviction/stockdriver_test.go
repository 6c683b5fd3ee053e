package eviction

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	stock "k8s.io/kubernetes/pkg/kubelet/eviction"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
	"github.com/plimsoll-project/plimsoll/test/fakekill"
)

// scene is what both managers see in one step of a sequence.
type scene struct {
	summary *statsapi.Summary
	// after is the summary after a node-level reclaim in this step.
	after *statsapi.Summary
	err   error
	pods  []*v1.Pod
	// probe, when set, wants to enter after the round.
	probe *v1.Pod
	// unkillable pods return an error when they are killed.
	unkillable map[string]bool
}

// acts is what a manager did in one step.
type acts struct {
	conditions string
	victims    []string
	reclaimed  string
}

func (a acts) String() string {
	return fmt.Sprintf("conditions %s, victims %q, reclaimed %s", a.conditions, a.victims, a.reclaimed)
}

type pressures interface {
	IsUnderMemoryPressure() bool
	IsUnderDiskPressure() bool
	IsUnderPIDPressure() bool
}

func conditionsOf(m pressures) string {
	return fmt.Sprintf("memory=%v disk=%v pid=%v", m.IsUnderMemoryPressure(), m.IsUnderDiskPressure(),
		m.IsUnderPIDPressure())
}

// stage is the fake world around a manager: it plays the scene and writes down what is done.
type stage struct {
	scene     *scene
	reclaims  []string
	dedicated bool
	split     bool
	// mu is for what kills write, which go side by side with ours.
	mu      sync.Mutex
	victims []victim
	notes   map[string]string
	// kills, when set, replaces the book-keeping of kills.
	kills func(*v1.Pod)
	// splitErr is what the search for a container file system ends with; splitAsked is how often it was begun.
	splitErr   error
	splitAsked int
	// statuses are those of the victims.
	statuses map[string]v1.PodStatus
}

func (s *stage) Get(context.Context, bool) (*statsapi.Summary, error) {
	if len(s.reclaims) > 0 && s.scene.after != nil {
		return s.scene.after, s.scene.err
	}
	return s.scene.summary, s.scene.err
}

func (s *stage) HasDedicatedImageFs(context.Context) (bool, error) { return s.dedicated, nil }
func (s *stage) HasDedicatedContainerFs(context.Context) (bool, error) {
	s.splitAsked++
	return s.split && s.splitErr == nil, s.splitErr
}

func (s *stage) DeleteUnusedImages(context.Context) error {
	s.reclaims = append(s.reclaims, "images")
	return nil
}

func (s *stage) DeleteAllUnusedContainers(context.Context) error {
	s.reclaims = append(s.reclaims, "containers")
	return nil
}

// Reclaim stands for both of stock's, which it calls in stock's order.
func (s *stage) Reclaim(ctx context.Context, q policy.ReclaimRequest) (snapshot.Reclaimed, error) {
	var err error
	if q.Containers {
		err = errors.Join(err, s.DeleteAllUnusedContainers(ctx))
	}
	if q.Images {
		err = errors.Join(err, s.DeleteUnusedImages(ctx))
	}
	return snapshot.Reclaimed{}, err
}

func (s *stage) kill(pod *v1.Pod, evict bool, graceSeconds *int64, setStatus func(*v1.PodStatus)) error {
	if s.kills != nil {
		s.kills(pod)
		return nil
	}
	status := v1.PodStatus{}
	setStatus(&status)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.statuses == nil {
		s.statuses = map[string]v1.PodStatus{}
	}
	s.statuses[pod.Name] = status
	s.victims = append(s.victims, victim{
		pod: pod.Name, how: fmt.Sprintf("grace=%d evict=%v %s %s %q", *graceSeconds, evict, status.Phase, status.Reason,
			status.Message),
	})
	if s.scene.unkillable[pod.Name] {
		return errors.New("cannot be killed")
	}
	return nil
}

// victim is a pod that was told to stop, and on which terms.
type victim struct{ pod, how string }

// take is called when nothing is under way any more. Kills of one round have no order: ours go side by side.
func (s *stage) take(m pressures) acts {
	a := acts{conditions: conditionsOf(m), reclaimed: fmt.Sprint(s.reclaims)}
	for _, v := range s.victims {
		a.victims = append(a.victims, v.pod+" "+v.how+" "+s.notes[v.pod])
	}
	slices.Sort(a.victims)
	s.victims, s.reclaims = nil, nil
	return a
}

// stepClock makes stock's wait for clean-up end at once: its ticker has ticked, its timer never fires.
type stepClock struct{ *clocktesting.FakeClock }

type tick struct{ c chan time.Time }

func (t tick) C() <-chan time.Time { return t.c }
func (t tick) Stop()               {}
func (stepClock) NewTicker(time.Duration) clock.Ticker {
	c := make(chan time.Time, 1)
	c <- time.Time{}
	return tick{c}
}

// stockManager is the stock manager, driven one round at a time: it blocks where it asks for the pods, and that it asks
// again shows that the round before is over.
type stockManager struct {
	stage
	manager stock.Manager
	admit   lifecycle.PodAdmitHandler
	clock   stepClock
	arrived chan struct{}
	proceed chan bool
}

func newStock(config stock.Config, dedicated, split, isolation bool, now time.Time,
	prepare ...func(*stage)) *stockManager {
	s := &stockManager{clock: stepClock{clocktesting.NewFakeClock(now)}, arrived: make(chan struct{}),
		proceed: make(chan bool)}
	s.dedicated, s.split, s.notes = dedicated, split, map[string]string{}
	for _, f := range prepare {
		f(&s.stage)
	}
	recorder := &notes{stage: &s.stage}
	summary := fullSummary{&s.stage}
	s.manager, s.admit = stock.NewManager(summary, config, s.kill, &s.stage, &s.stage, recorder, &v1.ObjectReference{},
		s.clock, isolation)
	pods := func() []*v1.Pod {
		s.arrived <- struct{}{}
		if !<-s.proceed {
			runtime.Goexit()
		}
		return slices.Clone(s.scene.pods)
	}
	s.manager.Start(context.Background(), &s.stage, pods, func(*v1.Pod) bool { return true }, 0)
	<-s.arrived
	return s
}

func (s *stockManager) step(sc *scene, now time.Time) acts {
	s.scene = sc
	s.clock.SetTime(now)
	s.proceed <- true
	<-s.arrived
	return s.take(s.manager)
}

func (s *stockManager) stop() { s.proceed <- false }

// fullSummary completes stage to stock's interface.
type fullSummary struct{ *stage }

func (f fullSummary) GetCPUAndMemoryStats(ctx context.Context) (*statsapi.Summary, error) {
	return f.Get(ctx, true)
}

// ourManager is ours, driven in the same way: its rounds are run by the test, and what it begins is waited for.
type ourManager struct {
	stage
	manager *Manager
	clock   stepClock
}

// stockFeatures are the gates that stock's manager reads.
func stockFeatures() Features { return FeaturesFrom(utilfeature.DefaultFeatureGate) }

func newOurs(c Config, dedicated, split bool, now time.Time) (*ourManager, error) {
	o := &ourManager{clock: stepClock{clocktesting.NewFakeClock(now)}}
	o.dedicated, o.split, o.notes = dedicated, split, map[string]string{}
	var err error
	if c.Collector, err = o.collector(true); err != nil {
		return nil, err
	}
	c.Reclaimer = &o.stage
	c.Recorder, c.NodeRef, c.Clock = &notes{stage: &o.stage}, &v1.ObjectReference{}, o.clock
	c.Kill = fakekill.Waiting(func(_ context.Context, r podkill.Request) error {
		return o.kill(r.Pod, r.Evict, r.GracePeriodSeconds, r.Disruption.Apply)
	})
	c.ActivePods = func() []*v1.Pod { return o.scene.pods }
	c.PodByUID = func(uid types.UID) (*v1.Pod, bool) { return podByUID(o.scene.pods, uid) }
	c.PodStopped = func(uid types.UID) bool { _, active := podByUID(o.scene.pods, uid); return !active }
	c.PodCleanedUp = func(uid types.UID) bool { return !o.scene.unkillable[string(uid)] }
	o.manager, err = New(c)
	return o, err
}

// collector reads the stage, with or without the feature gate KubeletSeparateDiskGC.
func (o *ourManager) collector(separateDiskGC bool) (Collector, error) {
	return collect.New(collect.Sources{
		Summary: &o.stage, DiskInfo: &o.stage, SeparateDiskGC: separateDiskGC, Clock: o.clock,
	})
}

func (o *ourManager) step(ctx context.Context, sc *scene, now time.Time) acts {
	o.scene = sc
	o.clock.SetTime(now)
	m := o.manager
	m.ledger.sweep(m.clock.now, false, lives{stopped: m.config.PodStopped, cleanedUp: m.config.PodCleanedUp})
	f := m.collectStats(ctx, collectRequest{})
	m.synchronize(ctx, &f)
	o.settle(ctx)
	if len(o.reclaims) > 0 {
		o.clock.SetTime(now.Add(time.Millisecond))
		f = m.collectStats(ctx, collectRequest{})
		m.synchronize(ctx, &f)
		o.settle(ctx)
	}
	return o.take(m)
}

// settle waits for what a round has begun, and lets the sinks handle it.
func (o *ourManager) settle(ctx context.Context) {
	o.manager.work.Wait()
	for _, w := range o.manager.sinks.workers {
		w.drain(ctx)
	}
}
