package agentlife

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	"k8s.io/mount-utils"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/housekeeping"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
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

// agent is one run of the agent in the world, composed as pkg/kubelet composes it. Only parts that would access the
// real machine are replaced: the runtime, the API server, files and the operations of pod workers.
type agent struct {
	t *testing.T
	w *world

	store       *podlifecycle.Store
	pods        kubepod.Manager
	workers     *podworkers.Workers
	records     *terminations.Store
	cache       kubecontainer.Cache
	shutdown    *nodeshutdown.Manager
	gate        *admission.Gate
	readmission *admission.Readmission
	handlers    *syncloop.Handlers
	loop        *syncloop.Loop
	statuses    *statuses
	ready       config.SourcesReady

	updates chan kubetypes.PodUpdate
	events  chan *pleg.PodLifecycleEvent
	// read requests that the sources are read; the channel in it, if not nil, is closed afterwards.
	read           chan chan struct{}
	shutdownEvents chan nodeshutdown.Announcement
	// files and api are the sources as the agent has read them.
	files, api *feed

	// recorded are the pods with a termination record on disk when this run began. They must not be started.
	recorded sets.Set[types.UID]

	cancel  context.CancelFunc
	done    sync.WaitGroup
	stopped bool
}

// startAgent starts an agent.
func (w *world) startAgent(t *testing.T) *agent {
	a := &agent{
		t: t, w: w, store: podlifecycle.NewStore(), pods: kubepod.NewBasicPodManager(), cache: kubecontainer.NewCache(),
		statuses: &statuses{of: map[types.UID]v1.PodStatus{}},
		updates:  make(chan kubetypes.PodUpdate, 50), events: make(chan *pleg.PodLifecycleEvent, 1000),
		read:           make(chan chan struct{}),
		shutdownEvents: make(chan nodeshutdown.Announcement, 100),
		files:          &feed{source: kubetypes.FileSource}, api: &feed{source: kubetypes.ApiserverSource},
	}
	a.ready = config.NewSourcesReady(func(seen sets.Set[string]) bool {
		return seen.HasAll(kubetypes.FileSource, kubetypes.ApiserverSource)
	})
	a.records = terminations.New(terminations.Config{
		Directory:    filepath.Join(w.dir, "terminations"),
		ShuttingDown: func() bool { return a.shutdown.ShutdownStatus() != nil },
	})
	a.records.Load(t.Context())
	a.recorded = sets.New[types.UID]()
	a.records.DeleteFunc(func(r terminations.Record) bool { a.recorded.Insert(r.UID); return false })
	work := queue.NewBasicWorkQueue(clock.RealClock{})
	a.workers = podworkers.New(podworkers.Config{
		Store: a.store, Syncer: a, Runtime: a, PodCache: a.cache, Queue: work, Recorder: &record.FakeRecorder{},
		Terminations: a.records, EarlierStaticPods: a, Hastener: fakeworkers.Hastener{}, Allocation: fakeworkers.Allocation{},
		Overdue: fakeworkers.NoneOverdue, ResyncInterval: resyncInterval, BackoffPeriod: backoffPeriod,
	})
	view := podview.New(a.pods, a.store, a.statuses)
	a.shutdown = a.shutdownManager(view)
	waiting := a.admit(view)
	cleaner := a.cleaner(view, waiting)
	a.handlers = syncloop.NewHandlers(syncloop.HandlersConfig{
		Pods: a.pods, Workers: a.workers, Lifecycle: a.workers, Gate: a.gate, Waiting: waiting,
		Resizes: &syncloop.Resizes{Allocations: noAllocations{}}, Certificates: &podcertificate.NoOpManager{},
		SourcesReady: a.ready, Statuses: a.statuses,
		RemoveDeadContainers: func(context.Context, types.UID) {},
	})
	a.loop = syncloop.New(syncloop.Config{
		Inputs: syncloop.Inputs{Pods: a.updates, Runtime: a.events}, Handlers: a.handlers, RuntimeErrors: a.runtimeErrors,
		RuntimeLastDown: time.Now, // It counts only while there are errors.
		SourcesReady:    a.ready, Status: noStatuses{}, CleanUp: cleaner.CleanUp, RestartPods: cleaner.RestartPods,
		ContainerDied: func(context.Context, types.UID, string) {},
		Due:           work.GetWork, ShouldSync: func(*v1.Pod) bool { return false }, ResyncInterval: resyncInterval,
	})
	a.run(cleaner)
	return a
}

// run starts the goroutines.
func (a *agent) run(cleaner *housekeeping.Cleaner) {
	var ctx context.Context
	ctx, a.cancel = context.WithCancel(a.t.Context())
	a.done.Go(func() { a.records.Run(ctx) })
	a.done.Go(func() { a.relist(ctx) })
	a.done.Go(func() { a.readSources(ctx) })
	a.done.Go(func() {
		for a.w.call(ctx, "list at start") != nil && ctx.Err() == nil {
		}
		running := a.w.list()
		a.workers.DeleteStaleTerminations(running)
		a.workers.SetRunningAtStart(running)
		a.readmission.SetRunning(running)
		a.shutdown.Start(ctx)
	})
	a.done.Go(func() {
		if err := a.loop.Run(ctx); err != nil {
			a.t.Error(err)
		}
		cleaner.Wait()
	})
}

// crash ends the agent as SIGKILL does: the termination records on disk remain as they are now.
func (a *agent) crash() {
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
	a.stop()
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

// stop stops the agent, once.
func (a *agent) stop() {
	if a.stopped {
		return
	}
	a.stopped = true
	a.cancel()
	if err := a.workers.Stop(context.Background()); err != nil {
		a.t.Error(err)
	}
	a.cache.UpdateTime(time.Now().Add(time.Hour)) // ends all calls of GetNewerThan
	a.done.Wait()
}

// runtimeErrors returns an error, which pauses the sync loop, until the runtime has listed its pods, and while it is
// down.
func (a *agent) runtimeErrors() error {
	if _, err := a.readmission.Healthy(); err != nil {
		return err
	}
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	if a.w.down && !a.w.healthy {
		return errRuntime
	}
	return nil
}

func (a *agent) cleaner(view *podview.View, waiting *admission.WaitingPods) *housekeeping.Cleaner {
	layout := paths.New(filepath.Join(a.w.dir, "root"), filepath.Join(a.w.dir, "logs"))
	if err := os.MkdirAll(layout.Pods(), 0o750); err != nil {
		a.t.Fatal(err)
	}
	return housekeeping.New(housekeeping.Config{
		Pods: a.pods, Workers: a.workers, Mirrors: nothing{}, Lifecycle: a.store, Active: view, Waiting: waiting.IsWaiting,
		ShuttingDown: func() bool { return a.shutdown.ShutdownStatus() != nil },
		Runtime:      a, Disk: housekeeping.NewDisk(layout, mount.NewFakeMounter(nil), nothing{}), Probes: nothing{},
		Statuses: a.statuses, Allocations: nothing{}, UserNamespaces: nothing{}, BackOff: nothing{}, Clock: clock.RealClock{},
	})
}
