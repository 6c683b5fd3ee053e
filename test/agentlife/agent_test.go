package agentlife

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podview"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/syncloop"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
	"github.com/plimsoll-project/plimsoll/test/fakeworkers"
)

const (
	resyncInterval = time.Minute
	backoffPeriod  = 10 * time.Second
	relistPeriod   = time.Second
)

// agent is one run of the agent in the world, put together as pkg/kubelet does it. Only what would reach the real
// machine is replaced: the runtime, the API server, files and the work of a pod's phases.
type agent struct {
	t *testing.T
	w *world

	store    *podlifecycle.Store
	pods     kubepod.Manager
	workers  *podworkers.Workers
	kept     *terminations.Store
	cache    kubecontainer.Cache
	shutdown *nodeshutdown.Manager
	gate     *admission.Gate
	again    *admission.Readmission
	handlers *syncloop.Handlers
	loop     *syncloop.Loop
	statuses *statuses
	ready    config.SourcesReady

	updates chan kubetypes.PodUpdate
	events  chan *pleg.PodLifecycleEvent
	// look has the sources looked at, and answers when that is done.
	look      chan chan struct{}
	announced chan bool
	// files and api are what the sources have delivered.
	files, api *feed

	// promised are the pods whose end was on disk when this run began. They are not started any more.
	promised sets.Set[types.UID]

	cancel context.CancelFunc
	done   sync.WaitGroup
	ended  bool
}

// begin starts an agent.
func (w *world) begin(t *testing.T) *agent {
	a := &agent{
		t: t, w: w, store: podlifecycle.NewStore(), pods: kubepod.NewBasicPodManager(), cache: kubecontainer.NewCache(),
		statuses: &statuses{of: map[types.UID]v1.PodStatus{}},
		updates:  make(chan kubetypes.PodUpdate, 50), events: make(chan *pleg.PodLifecycleEvent, 1000),
		look:      make(chan chan struct{}),
		announced: make(chan bool, 100),
		files:     &feed{source: kubetypes.FileSource}, api: &feed{source: kubetypes.ApiserverSource},
	}
	a.ready = config.NewSourcesReady(func(seen sets.Set[string]) bool {
		return seen.HasAll(kubetypes.FileSource, kubetypes.ApiserverSource)
	})
	a.kept = terminations.New(terminations.Config{
		Directory:    filepath.Join(w.dir, "terminations"),
		ShuttingDown: func() bool { return a.shutdown.ShutdownStatus() != nil },
	})
	a.kept.Load(t.Context())
	a.promised = sets.New[types.UID]()
	a.kept.DeleteFunc(func(r terminations.Record) bool { a.promised.Insert(r.UID); return false })
	work := queue.NewBasicWorkQueue(clock.RealClock{})
	a.workers = podworkers.New(podworkers.Config{
		Store: a.store, Syncer: a, Runtime: a, PodCache: a.cache, Queue: work, Recorder: &record.FakeRecorder{},
		Terminations: a.kept, EarlierStaticPods: a, Hastener: fakeworkers.Hastener{}, Allocation: fakeworkers.Allocation{},
		Overdue: fakeworkers.NoneOverdue, ResyncInterval: resyncInterval, BackoffPeriod: backoffPeriod,
	})
	view := podview.New(a.pods, a.store, a.statuses)
	a.shutdown = a.shutdownManager(view)
	room := a.admit(view)
	cleaner := a.cleaner(view, room)
	a.handlers = syncloop.NewHandlers(syncloop.HandlersConfig{
		Pods: a.pods, Workers: a.workers, Lifecycle: a.workers, Gate: a.gate, Waiting: room,
		Resizes: &syncloop.Resizes{Allocations: noAllocations{}}, Certificates: &podcertificate.NoOpManager{},
		SourcesReady: a.ready, Statuses: a.statuses,
		RemoveDeadContainers: func(context.Context, types.UID) {},
	})
	a.loop = syncloop.New(syncloop.Config{
		Inputs: syncloop.Inputs{Pods: a.updates, Runtime: a.events}, Handlers: a.handlers, RuntimeErrors: a.runtimeErrors,
		SourcesReady: a.ready, Status: noStatuses{}, CleanUp: cleaner.CleanUp, RestartPods: cleaner.RestartPods,
		ContainerDied: func(context.Context, types.UID, string) {},
		Due:           work.GetWork, ShouldSync: func(*v1.Pod) bool { return false }, ResyncInterval: resyncInterval,
	})
	a.run(cleaner)
	return a
}

// run starts what runs.
func (a *agent) run(cleaner *housekeeping.Cleaner) {
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(a.t.Context())
	a.done.Go(func() { a.kept.Run(ctx) })
	a.done.Go(func() { a.relist(ctx) })
	a.done.Go(func() { a.readSources(ctx) })
	a.done.Go(func() {
		for a.w.call(ctx, "list at start") != nil && ctx.Err() == nil {
		}
		running := a.w.list()
		a.workers.DeleteStaleTerminations(running)
		a.workers.SetRunningAtStart(running)
		a.again.SetRunning(running)
		a.shutdown.Start(ctx)
	})
	a.done.Go(func() {
		if err := a.loop.Run(ctx); err != nil {
			a.t.Error(err)
		}
		cleaner.Wait()
	})
}

// die ends the agent as kill -9 does: what it keeps on disk stays as it is now.
func (a *agent) die() {
	before := map[string][]byte{}
	dir := filepath.Join(a.w.dir, "terminations")
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		a.t.Fatal(err)
	}
	for _, f := range files {
		if before[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			a.t.Fatal(err)
		}
	}
	a.end()
	if err := os.RemoveAll(dir); err != nil {
		a.t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		a.t.Fatal(err)
	}
	for name, data := range before {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// end ends the agent, once.
func (a *agent) end() {
	if a.ended {
		return
	}
	a.ended = true
	a.cancel()
	if err := a.workers.Stop(context.Background()); err != nil {
		a.t.Error(err)
	}
	a.cache.UpdateTime(time.Now().Add(time.Hour)) // ends those that still wait for a status
	a.done.Wait()
}

// runtimeErrors keeps the loop from turning until the runtime has answered.
func (a *agent) runtimeErrors() error {
	if _, err := a.again.Healthy(); err != nil {
		return err
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.w.down && !a.w.calm {
		return errRuntime
	}
	return nil
}

// relist is the PLEG.
func (a *agent) relist(ctx context.Context) {
	seen := map[types.UID]bool{}
	for ctx.Err() == nil {
		at := time.Now()
		if a.w.call(ctx, "relist") == nil {
			now := map[types.UID]bool{}
			for _, pod := range a.w.list() {
				now[pod.ID] = true
			}
			a.tellChanges(ctx, seen, now)
			seen = now
			a.cache.UpdateTime(at)
		}
		select {
		case <-ctx.Done():
		case <-time.After(relistPeriod):
		}
	}
}

func (a *agent) tellChanges(ctx context.Context, before, now map[types.UID]bool) {
	for _, m := range []map[types.UID]bool{before, now} {
		for uid := range m {
			if before[uid] == now[uid] {
				continue
			}
			a.cache.Set(uid, a.w.status(uid), nil, time.Now())
			kind := pleg.ContainerDied
			if now[uid] {
				kind = pleg.ContainerStarted
			}
			select {
			case <-ctx.Done():
			case a.events <- &pleg.PodLifecycleEvent{ID: uid, Type: kind, Data: "main"}:
			}
		}
	}
}

// readSources delivers what has changed at the sources: manifests at once, unreadable ones with the next list, the API
// server's pods while it answers.
func (a *agent) readSources(ctx context.Context) {
	tick, list := time.NewTicker(time.Second), time.NewTicker(listPeriod)
	defer tick.Stop()
	defer list.Stop()
	a.readFiles(ctx, true)
	for ctx.Err() == nil {
		var answer chan struct{}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.readFiles(ctx, false)
		case <-list.C:
			a.readFiles(ctx, true)
		case answer = <-a.look:
			a.readFiles(ctx, false)
		}
		if a.w.apiAnswers() {
			a.publish()
			a.api.deliver(ctx, a.updates, a.w.apiPods())
		}
		if answer != nil {
			close(answer)
		}
	}
}

// readFiles delivers the manifests. One that has become unreadable stays as it was, unless all are listed.
func (a *agent) readFiles(ctx context.Context, all bool) {
	pods := a.w.manifests()
	if !all {
		a.w.mu.Lock()
		for _, pod := range a.files.pods {
			if f, there := a.w.files[pod.Name]; there && f.unreadable {
				pods = append(pods, pod)
			}
		}
		a.w.mu.Unlock()
	}
	a.files.deliver(ctx, a.updates, pods)
}

// poke has the sources looked at, now or within a second.
func (a *agent) poke() {
	select {
	case a.look <- nil:
	default:
	}
}

// changed has the sources looked at, as a watch does, and returns when that is done.
func (a *agent) changed() {
	answer := make(chan struct{})
	a.look <- answer
	<-answer
}

// publish tells the API server how pods have ended, as the status manager does.
func (a *agent) publish() {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	for uid, pod := range a.w.api {
		status, known := a.statuses.GetPodStatus(uid)
		if known && status.Phase != pod.Status.Phase {
			pod.Status = status
		}
		if pod.DeletionTimestamp != nil && a.store.ShouldPodBeFinished(uid) {
			delete(a.w.api, uid)
		}
	}
}

// feed is a source of pods, as the agent has seen it last.
type feed struct {
	source    string
	mu        sync.Mutex
	pods      []*v1.Pod
	delivered bool
	// ever are all pods that were ever delivered.
	ever sets.Set[types.UID]
}

// deliver sends what has changed since the last call.
func (f *feed) deliver(ctx context.Context, updates chan<- kubetypes.PodUpdate, pods []*v1.Pod) {
	before := f.snapshot()
	found := func(in []*v1.Pod, uid types.UID) *v1.Pod {
		if i := slices.IndexFunc(in, func(p *v1.Pod) bool { return p.UID == uid }); i >= 0 {
			return in[i]
		}
		return nil
	}
	changes := map[kubetypes.PodOperation][]*v1.Pod{}
	for _, pod := range before {
		if found(pods, pod.UID) == nil {
			changes[kubetypes.REMOVE] = append(changes[kubetypes.REMOVE], pod)
		}
	}
	for _, pod := range pods {
		switch old := found(before, pod.UID); {
		case old == nil:
			changes[kubetypes.ADD] = append(changes[kubetypes.ADD], pod)
		case (pod.DeletionTimestamp != nil) != (old.DeletionTimestamp != nil):
			changes[kubetypes.DELETE] = append(changes[kubetypes.DELETE], pod)
		case pod.Status.Phase != old.Status.Phase:
			changes[kubetypes.RECONCILE] = append(changes[kubetypes.RECONCILE], pod)
		}
	}
	first := f.set(pods)
	for _, op := range []kubetypes.PodOperation{kubetypes.REMOVE, kubetypes.ADD, kubetypes.DELETE, kubetypes.RECONCILE} {
		if len(changes[op]) == 0 && (op != kubetypes.ADD || !first) {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case updates <- kubetypes.PodUpdate{Op: op, Source: f.source, Pods: changes[op]}:
		}
	}
}

func (f *feed) snapshot() []*v1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pods)
}

func (f *feed) set(pods []*v1.Pod) (first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	first = !f.delivered
	f.pods, f.delivered = pods, true
	if f.ever == nil {
		f.ever = sets.New[types.UID]()
	}
	for _, pod := range pods {
		f.ever.Insert(pod.UID)
	}
	return first
}

func (f *feed) seen(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ever.Has(uid)
}

// Sync, Terminate, TerminateRuntimePod and CleanUp stand for podsync.

func (a *agent) Sync(ctx context.Context, request podsync.SyncRequest) (podsync.SyncResult, error) {
	if err := a.w.call(ctx, "sync "+string(request.Pod.UID)); err != nil {
		return podsync.SyncResult{}, err
	}
	if a.promised.Has(request.Pod.UID) {
		a.w.change(func() { a.w.fault("%s is started although its end is on disk", request.Pod.UID) })
	}
	if a.over(request.Pod.UID) {
		// A terminal phase is never left.
		return podsync.SyncResult{Terminal: true}, nil
	}
	a.w.start(request.Pod)
	a.statuses.set(request.Pod.UID, v1.PodStatus{Phase: v1.PodRunning})
	return podsync.SyncResult{}, nil
}

func (a *agent) Terminate(ctx context.Context, request podsync.TerminateRequest) error {
	uid := request.Pod.UID
	if request.Disruption != nil {
		status := v1.PodStatus{Phase: v1.PodRunning}
		request.Disruption.Apply(&status)
		a.statuses.set(uid, status)
	}
	if err := a.w.call(ctx, "terminate "+string(uid)); err != nil {
		return err
	}
	return a.w.stop(ctx, uid, time.Duration(*request.GracePeriod)*time.Second)
}

func (a *agent) TerminateRuntimePod(ctx context.Context, pod *kubecontainer.Pod) error {
	if err := a.w.call(ctx, "terminate "+string(pod.ID)); err != nil {
		return err
	}
	return a.w.stop(ctx, pod.ID, time.Second)
}

func (a *agent) CleanUp(ctx context.Context, pod *v1.Pod, _ *kubecontainer.PodStatus) error {
	if err := a.w.call(ctx, "clean up "+string(pod.UID)); err != nil {
		return err
	}
	returns := a.shutdown.RestartsAfterShutdown(pod)
	a.shutdown.PodStopped(pod.UID)
	status, _ := a.statuses.GetPodStatus(pod.UID)
	if !returns && !kubetypes.IsStaticPod(pod) && status.Phase != v1.PodFailed {
		a.statuses.set(pod.UID, v1.PodStatus{Phase: v1.PodSucceeded})
	}
	return nil
}

// RunningStaticPods implements podworkers.EarlierStaticPods.
func (a *agent) RunningStaticPods(ctx context.Context, fullName string) ([]*kubecontainer.Pod, error) {
	if err := a.w.call(ctx, "static pods"); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(a.w.list(), func(p *kubecontainer.Pod) bool {
		return kubecontainer.BuildPodFullName(p.Name, p.Namespace) != fullName
	}), nil
}

// GetPods and ForceUpdateIfOlder implement housekeeping.RuntimeCache.

func (a *agent) GetPods(context.Context) ([]*kubecontainer.Pod, error) { return a.w.list(), nil }

func (a *agent) ForceUpdateIfOlder(ctx context.Context, _ time.Time) error {
	return a.w.call(ctx, "list")
}

// admit makes the gate: what asks for nothing but that a pod that was here before is let in.
func (a *agent) admit(view *podview.View) *admission.WaitingPods {
	a.again = admission.NewReadmission(noAllocations{}, a.store)
	room := admission.NewWaitingPods(admission.WaitingPodsConfig{
		Pressure: calm{}, Victims: calm{}, Status: a.statuses, Recorder: &record.FakeRecorder{}, Clock: clock.RealClock{},
		Active: view.Active, ShuttingDown: func() bool { return a.shutdown.ShutdownStatus() != nil },
		MaxWait: func() time.Duration { return 0 },
	})
	a.gate = admission.NewGate(a, a.again, room, admission.NewRejector(&record.FakeRecorder{}, a.statuses))
	return room
}

// AddPod is the chain of admit handlers: pressure, and the shutdown manager.
func (a *agent) AddPod(_ []*v1.Pod, pod *v1.Pod) (ok bool, reason, message string) {
	a.w.mu.Lock()
	_, runs := a.w.running[pod.UID]
	pressure := a.w.pressure
	a.w.mu.Unlock()
	here := a.again.Readmitted(pod)
	// A static pod that was dropped and is named again while the runtime does not answer may be admitted like a new one:
	// its worker was forgotten, and the next look at the runtime is yet to come.
	if runs && !here && !kubetypes.IsStaticPod(pod) {
		a.w.change(func() { a.w.fault("%s runs and is taken for a new pod", pod.UID) })
	}
	if pressure && !here && !kubetypes.IsStaticPod(pod) {
		return false, policy.ReasonEvicted, "The node had condition: [MemoryPressure]. "
	}
	answer := a.shutdown.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
	return answer.Admit, answer.Reason, answer.Message
}

// shutdownManager is the real one, with a login manager that says what the test wants.
func (a *agent) shutdownManager(view *podview.View) *nodeshutdown.Manager {
	return nodeshutdown.New(nodeshutdown.Config{
		Periods: plan.Legacy(30*time.Second, 10*time.Second), Connect: func() (nodeshutdown.Logind, error) { return a, nil },
		Pods: nodeshutdown.Pods{
			Active: view.Active, Ready: a.ready.AllReady, Terminating: a.store.IsPodTerminationRequested,
			Readmitted: func(pod *v1.Pod) bool { return a.again.Readmitted(pod) }, Kill: a.workers.KillPod,
			Unmounted: func(context.Context, []*v1.Pod) error { return nil },
			Restart:   func(ctx context.Context, stopped []*v1.Pod) { a.handlers.Restart(ctx, stopped) },
		},
		SyncNode: func(context.Context) {}, Recorder: &record.FakeRecorder{}, NodeRef: &v1.ObjectReference{},
		Clock: clock.RealClock{},
	})
}

// Grant, Inhibit and Watch implement nodeshutdown.Logind.

func (a *agent) Grant(_ context.Context, wanted time.Duration) (time.Duration, error) {
	return wanted, nil
}
func (a *agent) Inhibit() (io.Closer, error) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.w.goingDown {
		return nil, nodeshutdown.ErrGoingDown
	}
	return noLock{}, nil
}
func (a *agent) Watch(context.Context) (nodeshutdown.Announcements, error) {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return nodeshutdown.Announcements{Events: a.announced, Known: true, GoingDown: a.w.goingDown}, nil
}

// announce says that the machine goes down, or that it does not after all.
func (a *agent) announce(goingDown bool) {
	a.w.change(func() { a.w.goingDown = goingDown })
	a.announced <- goingDown
}

func (a *agent) cleaner(view *podview.View, room *admission.WaitingPods) *housekeeping.Cleaner {
	layout := paths.New(filepath.Join(a.w.dir, "root"), filepath.Join(a.w.dir, "logs"))
	if err := os.MkdirAll(layout.Pods(), 0o750); err != nil {
		a.t.Fatal(err)
	}
	return housekeeping.New(housekeeping.Config{
		Pods: a.pods, Workers: a.workers, Mirrors: nothing{}, Lifecycle: a.store, Active: view, Waiting: room.IsWaiting,
		Runtime: a, Disk: housekeeping.NewDisk(layout, mount.NewFakeMounter(nil), nothing{}), Probes: nothing{},
		Statuses: a.statuses, Allocations: nothing{}, UserNamespaces: nothing{}, BackOff: nothing{}, Clock: clock.RealClock{},
	})
}

// statuses is the status manager without the API server.
type statuses struct {
	mu sync.Mutex
	of map[types.UID]v1.PodStatus
}

func (s *statuses) set(uid types.UID, status v1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of[uid] = status
}

func (s *statuses) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status, ok := s.of[uid]
	return status, ok
}

func (s *statuses) SetPodStatus(_ klog.Logger, pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	s.set(pod.UID, status)
	return status, true
}

func (s *statuses) RemoveOrphanedStatuses(_ klog.Logger, keep map[types.UID]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for uid := range s.of {
		if !keep[uid] {
			delete(s.of, uid)
		}
	}
}

// noStatuses is a status manager that the loop does not call here, since there are no probes.
type noStatuses struct{ status.Manager }

// noAllocations is an allocation manager of a node on which nothing is allocated.
type noAllocations struct{ allocation.Manager }

func (noAllocations) RemovePod(types.UID) {}
func (noAllocations) GetContainerResourceAllocation(types.UID, string) (v1.ResourceRequirements, bool) {
	return v1.ResourceRequirements{}, false
}

type noLock struct{}

func (noLock) Close() error { return nil }

// calm has no pressure and makes no room.
type calm struct{}

func (calm) Judge(*v1.Pod) (policy.Verdict, string) { return policy.Admitted, "" }
func (calm) InProgress(types.UID) bool              { return false }
func (calm) Begin(context.Context, types.UID)       {}
func (calm) Forget(types.UID)                       {}

// nothing is what housekeeping cleans beside pods.
type nothing struct{}

func (nothing) DeleteMirrorPod(context.Context, string, *types.UID) (bool, error) { return true, nil }
func (nothing) CleanupPods(map[types.UID]sets.Empty)                              {}
func (nothing) RemoveOrphanedPods(sets.Set[types.UID])                            {}
func (nothing) GC()                                                               {}
func (nothing) HasPossiblyMountedVolumesForPod(volumetypes.UniquePodName) bool    { return false }
func (nothing) CleanupOrphanedPodUsernsAllocations(context.Context, []*v1.Pod, []*kubecontainer.Pod) error {
	return nil
}
