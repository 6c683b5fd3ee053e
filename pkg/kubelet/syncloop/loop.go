// Package syncloop is the agent's main loop. It receives all events that concern pods (changes in sources, events of
// the runtime, probe results, the health of devices, timers) and passes them to the pod workers. It runs admission, and
// must never block: pod workers execute everything that waits.
package syncloop

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/cm/resourceupdates"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/pleg"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

const (
	// syncPeriod is the interval at which the loop synchronizes pods that are due. The work queue decides when a pod is
	// due.
	syncPeriod = time.Second
	// housekeepingPeriod is the interval between the beginnings of two rounds of housekeeping. After a round that took
	// long, on a node whose CPUs are busy, there is a pause of housekeepingShare times as long: otherwise the loop, which
	// waits for it, would do little else. It is at most housekeepingMaxPause: only housekeeping starts a static pod again
	// whose manifest was away, and one round may be long because the runtime did not answer once.
	housekeepingPeriod   = 2 * time.Second
	housekeepingShare    = 4
	housekeepingMaxPause = 20 * time.Second
	// slowHousekeeping is the duration above which a round of housekeeping is logged: the loop waits for it.
	slowHousekeeping = time.Second
	// While the runtime is down the loop only checks the runtime and retries terminations, after a pause that doubles
	// between these limits.
	runtimeDownPause, runtimeDownPauseMax = 100 * time.Millisecond, 5 * time.Second
	// minHealthWindow is the least time without an iteration after which the loop is unhealthy.
	minHealthWindow = 5 * time.Minute
)

// Inputs are the channels that the loop reads. It has to read the channels of all results managers, which block when
// their buffers of 20 entries are full.
type Inputs struct {
	Pods      <-chan kubetypes.PodUpdate
	Runtime   <-chan *pleg.PodLifecycleEvent
	Devices   <-chan resourceupdates.Update
	Liveness  <-chan results.Update
	Readiness <-chan results.Update
	Startup   <-chan results.Update
	// RetryWaiting requests that the loop retries the admission of waiting pods at once; it may be nil.
	RetryWaiting <-chan struct{}
}

// Config are the dependencies and settings of a Loop. All functions must not block.
type Config struct {
	Inputs   Inputs
	Handlers *Handlers
	// RuntimeErrors returns why pods cannot be synchronized, nil if they can.
	RuntimeErrors func() error
	// RuntimeLastDown returns when the container runtime last did not answer as ready: now while it does not.
	RuntimeLastDown func() time.Time
	SourcesReady    config.SourcesReady
	Status          status.Manager
	// CleanUp runs one round of housekeeping. The loop waits for it.
	CleanUp func(ctx context.Context) error
	// RestartPods runs the part of CleanUp that does not wait until all sources are ready.
	RestartPods func(ctx context.Context) error
	// ContainerDied is called when a container has stopped, so that dead containers can be removed.
	ContainerDied func(ctx context.Context, uid types.UID, containerID string)
	// Due returns the UIDs of the pods that are due, each once.
	Due func() []types.UID
	// ShouldSync is true for a pod that must be synchronized although it is not due: its active deadline is exceeded.
	ShouldSync func(pod *v1.Pod) bool
	// ResyncInterval is syncFrequency of the KubeletConfiguration. It extends the window of the health check.
	ResyncInterval time.Duration
}

// Loop reads its inputs until its context ends.
type Loop struct {
	Config
	// lastIteration is when the last iteration that handled inputs began or ended; nil before the first one. lastTurn is
	// the same, or later when the loop last found the runtime down.
	lastIteration, lastTurn atomic.Pointer[time.Time]
	// postponed are the pods that were due while the runtime was down. Only Run uses it.
	postponed sets.Set[types.UID]
}

// New returns a loop. It reads nothing before Run.
func New(cfg Config) *Loop { return &Loop{Config: cfg, postponed: sets.New[types.UID]()} }

// Run reads the inputs until ctx ends or the channel of pods is closed, which is an error. It must be called once.
func (l *Loop) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	logger.Info("Starting kubelet main sync loop")
	syncTicker, housekeeping := time.NewTicker(syncPeriod), time.NewTimer(housekeepingPeriod)
	defer syncTicker.Stop()
	defer housekeeping.Stop()
	pause := runtimeDownPause
	for ctx.Err() == nil {
		if err := l.RuntimeErrors(); err != nil {
			if now := time.Now(); !l.RuntimeLastDown().Before(now) {
				l.lastTurn.Store(&now)
			}
			logger.Error(err, "Skipping pod synchronization")
			l.retryDue()
			sleep(ctx, pause)
			pause = min(2*pause, runtimeDownPauseMax)
			continue
		}
		pause = runtimeDownPause
		l.iterates()
		if err := l.handleInput(ctx, syncTicker.C, housekeeping); err != nil {
			return err
		}
		l.iterates()
	}
	return nil
}

// iterates records that an iteration that handles inputs begins or ends.
func (l *Loop) iterates() {
	now := time.Now()
	l.lastTurn.Store(&now) // First: HangCheck expects it with lastIteration.
	l.lastIteration.Store(&now)
}

// handleInput handles one input. If several are ready, select chooses one at random, so that no input starves another.
func (l *Loop) handleInput(ctx context.Context, syncTick <-chan time.Time, housekeeping *time.Timer) error {
	select {
	case <-ctx.Done():
	case u, open := <-l.Inputs.Pods:
		if !open {
			return errors.New("the channel of pod updates was closed")
		}
		l.handlePodUpdate(ctx, u)
	case e := <-l.Inputs.Runtime:
		l.handleRuntimeEvent(ctx, e)
	case <-syncTick:
		l.syncDue(ctx)
		l.Handlers.RetryWaiting(ctx)
	case <-l.Inputs.RetryWaiting:
		l.Handlers.RetryWaiting(ctx)
	case u := <-l.Inputs.Liveness:
		if u.Result == results.Failure {
			l.handleProbeResult(ctx, u, "liveness", "unhealthy")
		}
	case u := <-l.Inputs.Readiness:
		l.Status.SetContainerReadiness(klog.FromContext(ctx), u.PodUID, u.ContainerID, u.Result == results.Success)
		l.handleProbeResult(ctx, u, "readiness", outcome(u, "ready", "not ready"))
	case u := <-l.Inputs.Startup:
		l.Status.SetContainerStartup(klog.FromContext(ctx), u.PodUID, u.ContainerID, u.Result == results.Success)
		l.handleProbeResult(ctx, u, "startup", outcome(u, "started", "unhealthy"))
	case u := <-l.Inputs.Devices:
		for _, uid := range u.PodUIDs {
			l.Handlers.SyncByUID(ctx, types.UID(uid))
		}
	case <-housekeeping.C:
		took := l.housekeep(ctx)
		housekeeping.Reset(max(housekeepingPeriod-took, min(housekeepingShare*took, housekeepingMaxPause)))
	}
	return nil
}

func outcome(u results.Update, success, failure string) string {
	if u.Result == results.Success {
		return success
	}
	return failure
}

// handlePodUpdate dispatches a change in a source of pods.
func (l *Loop) handlePodUpdate(ctx context.Context, u kubetypes.PodUpdate) {
	logger := klog.FromContext(ctx)
	logger.V(2).Info("SyncLoop "+operation(u.Op), "source", u.Source, "pods", klog.KObjSlice(u.Pods))
	switch u.Op {
	case kubetypes.ADD:
		l.Handlers.Add(ctx, u.Pods)
	case kubetypes.UPDATE, kubetypes.DELETE:
		// A graceful deletion is an update: it sets the deletion timestamp.
		l.Handlers.Update(ctx, u.Pods)
	case kubetypes.REMOVE:
		l.Handlers.Remove(ctx, u.Pods)
	case kubetypes.RECONCILE:
		l.Handlers.Reconcile(ctx, u.Pods)
	default:
		logger.Error(nil, "Invalid operation type received", "operation", u.Op)
	}
	l.SourcesReady.AddSource(u.Source)
}

func operation(op kubetypes.PodOperation) string {
	names := map[kubetypes.PodOperation]string{
		kubetypes.ADD: "ADD", kubetypes.UPDATE: "UPDATE", kubetypes.DELETE: "DELETE", kubetypes.REMOVE: "REMOVE",
		kubetypes.RECONCILE: "RECONCILE",
	}
	return names[op]
}

// handleRuntimeEvent handles an event of the PLEG.
func (l *Loop) handleRuntimeEvent(ctx context.Context, e *pleg.PodLifecycleEvent) {
	// The removal of a container does not change its pod.
	if e.Type != pleg.ContainerRemoved && l.Handlers.SyncByUID(ctx, e.ID) {
		klog.FromContext(ctx).V(2).Info("SyncLoop (PLEG): event for pod", "podUID", e.ID, "event", e)
	}
	if id, ok := e.Data.(string); ok && e.Type == pleg.ContainerDied {
		l.ContainerDied(ctx, e.ID, id)
	}
}

// syncDue passes all pods that are due to the workers, with or without a source.
func (l *Loop) syncDue(ctx context.Context) {
	due := l.postponed.Insert(l.Due()...)
	l.postponed = sets.New[types.UID]()
	l.Handlers.SyncIf(ctx, func(pod *v1.Pod) bool { return due.Has(pod.UID) || l.ShouldSync(pod) })
	l.Handlers.Retry(sets.List(due))
}

// retryDue retries the terminations that are due while the runtime is down: later attempts take the escalation steps
// that do not need the runtime. All other pods that are due wait for the runtime.
func (l *Loop) retryDue() {
	uids := l.Due()
	l.postponed.Insert(uids...)
	l.Handlers.RetryTerminations(uids)
}

func (l *Loop) handleProbeResult(ctx context.Context, u results.Update, probe, status string) {
	if l.Handlers.SyncByUID(ctx, u.PodUID) {
		klog.FromContext(ctx).V(1).Info("SyncLoop (probe)", "probe", probe, "status", status, "podUID", u.PodUID)
	}
}

// housekeep runs housekeeping once every source has reported: before that, pods of a source that has not reported would
// be regarded as orphans. Until then it only restarts pods that their source has created again: one of them may be the
// API server, the source that has not reported. It returns the duration.
func (l *Loop) housekeep(ctx context.Context) (took time.Duration) {
	logger := klog.FromContext(ctx)
	work := l.CleanUp
	if !l.SourcesReady.AllReady() {
		logger.V(4).Info("SyncLoop (housekeeping): only restarting pods, sources aren't ready yet")
		work = l.RestartPods
	}
	start := time.Now()
	if err := work(ctx); err != nil {
		logger.Error(err, "Failed cleaning pods")
	}
	if took = time.Since(start); took > slowHousekeeping {
		logger.Error(nil, "Housekeeping took longer than expected", "expected", slowHousekeeping, "actual",
			took.Round(time.Millisecond))
	}
	return took
}

// errLate has stock's text.
var errLate = errors.New("sync Loop took longer than expected")

// healthWindow is how long no iteration may handle inputs.
func (l *Loop) healthWindow() time.Duration { return max(2*l.ResyncInterval, minHealthWindow) }

// HealthCheck returns an error if no iteration has handled inputs for twice the resync interval, or for five minutes if
// that is longer: the loop hangs, or the container runtime has been down for so long. Before the first iteration it
// returns none. It is the "syncloop" check of /healthz, as in stock. It may be called from any goroutine.
func (l *Loop) HealthCheck(_ *http.Request) error {
	if last := l.lastIteration.Load(); last != nil && time.Since(*last) > l.healthWindow() {
		return errLate
	}
	return nil
}

// longestWait is for how long the loop may wait for a container runtime that is down: each of its requests may take
// runtimeRequestTimeout, for which ten minutes and more are used.
const longestWait = 30 * time.Minute

// HangCheck returns an error if the loop hangs, whether HealthCheck does or not: while the container runtime does not
// answer as ready the loop handles no inputs, but evictions go on, and a new process could not even start. The loop may
// wait for the runtime then, for half an hour at most, and has its usual time again afterwards. HangCheck is the
// "syncloop" check of systemd's watchdog. It may be called from any goroutine.
func (l *Loop) HangCheck(_ *http.Request) error {
	if l.lastIteration.Load() == nil {
		return nil
	}
	window, stuck := l.healthWindow(), time.Since(*l.lastTurn.Load())
	waits := time.Since(l.RuntimeLastDown()) <= window
	if stuck <= window || (waits && stuck <= longestWait) {
		return nil
	}
	return errLate
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
