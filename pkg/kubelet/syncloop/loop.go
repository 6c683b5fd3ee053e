// Package syncloop is the agent's main loop. It waits for anything that may concern a pod (a change in a source,
// something that happened in the runtime, a probe result, a device's health, the clock) and tells the pod workers. It
// decides nothing but admission, and it must never block: everything that waits is done by a pod worker.
package syncloop

import (
	"context"
	"fmt"
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
	// syncPeriod is how often pods that are due are looked for. The work queue decides when a pod is due.
	syncPeriod = time.Second
	// housekeepingPeriod is the interval between two clean-ups.
	housekeepingPeriod = 2 * time.Second
	// slowHousekeeping is when a clean-up is reported as too slow: the loop stands still during it.
	slowHousekeeping = time.Second
	// While the runtime is down the loop only looks again after a pause that doubles between these bounds.
	runtimeDownPause, runtimeDownPauseMax = 100 * time.Millisecond, 5 * time.Second
	// minHealthWindow is the least time after which a loop that does not turn is called unhealthy.
	minHealthWindow = 5 * time.Minute
)

// Inputs are the channels the loop reads. All results managers must be drained here: their channels hold 20 entries and
// block.
type Inputs struct {
	Pods      <-chan kubetypes.PodUpdate
	Runtime   <-chan *pleg.PodLifecycleEvent
	Devices   <-chan resourceupdates.Update
	Liveness  <-chan results.Update
	Readiness <-chan results.Update
	Startup   <-chan results.Update
	// RetryWaiting delivers when admission should be tried again at once for the pods that wait for it; it may be nil.
	RetryWaiting <-chan struct{}
}

// Config is what a Loop works with.
type Config struct {
	Inputs   Inputs
	Handlers *Handlers
	// RuntimeErrors returns why pods cannot be synchronized now, or nil.
	RuntimeErrors func() error
	SourcesReady  config.SourcesReady
	Status        status.Manager
	// CleanUp is one round of housekeeping.
	CleanUp func(ctx context.Context) error
	// RestartPods is the part of it that does not wait until all sources are ready.
	RestartPods func(ctx context.Context) error
	// ContainerDied is told which container of which pod has ended, so that dead containers can be removed.
	ContainerDied func(ctx context.Context, uid types.UID, containerID string)
	// Due returns the UIDs of the pods whose work is due. Each is returned once.
	Due func() []types.UID
	// ShouldSync is true for a pod that must be synchronized although it is not due (its active deadline has passed).
	ShouldSync func(pod *v1.Pod) bool
	// ResyncInterval is syncFrequency; it only widens the health check's window.
	ResyncInterval time.Duration
}

// Loop reads its inputs until its context ends.
type Loop struct {
	Config
	turned atomic.Int64
}

// New returns a loop; nothing is read before Run.
func New(cfg Config) *Loop { return &Loop{Config: cfg} }

// Run reads the inputs until ctx ends or the channel of pods is closed, which is an error. It must be called once.
func (l *Loop) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	logger.Info("Starting kubelet main sync loop")
	syncTicker, housekeepingTicker := time.NewTicker(syncPeriod), time.NewTicker(housekeepingPeriod)
	defer syncTicker.Stop()
	defer housekeepingTicker.Stop()
	pause := runtimeDownPause
	for ctx.Err() == nil {
		if err := l.RuntimeErrors(); err != nil {
			logger.Error(err, "Skipping pod synchronization")
			sleep(ctx, pause)
			pause = min(2*pause, runtimeDownPauseMax)
			continue
		}
		pause = runtimeDownPause
		l.turned.Store(time.Now().UnixNano())
		if err := l.turn(ctx, syncTicker.C, housekeepingTicker.C); err != nil {
			return err
		}
	}
	return nil
}

// turn handles one input. Which one, when several are ready, is left to the runtime's random choice: no input may
// starve another.
func (l *Loop) turn(ctx context.Context, syncTick, housekeepingTick <-chan time.Time) error {
	select {
	case <-ctx.Done():
	case u, open := <-l.Inputs.Pods:
		if !open {
			return fmt.Errorf("the channel of pod updates was closed")
		}
		l.configured(ctx, u)
	case e := <-l.Inputs.Runtime:
		l.happened(ctx, e)
	case <-syncTick:
		l.syncDue(ctx)
		l.Handlers.AskAgain(ctx)
	case <-l.Inputs.RetryWaiting:
		l.Handlers.AskAgain(ctx)
	case u := <-l.Inputs.Liveness:
		if u.Result == results.Failure {
			l.probed(ctx, u, "liveness", "unhealthy")
		}
	case u := <-l.Inputs.Readiness:
		l.Status.SetContainerReadiness(klog.FromContext(ctx), u.PodUID, u.ContainerID, u.Result == results.Success)
		l.probed(ctx, u, "readiness", outcome(u, "ready", "not ready"))
	case u := <-l.Inputs.Startup:
		l.Status.SetContainerStartup(klog.FromContext(ctx), u.PodUID, u.ContainerID, u.Result == results.Success)
		l.probed(ctx, u, "startup", outcome(u, "started", "unhealthy"))
	case u := <-l.Inputs.Devices:
		for _, uid := range u.PodUIDs {
			l.Handlers.SyncByUID(ctx, types.UID(uid))
		}
	case <-housekeepingTick:
		l.housekeep(ctx)
	}
	return nil
}

func outcome(u results.Update, success, failure string) string {
	if u.Result == results.Success {
		return success
	}
	return failure
}

// configured dispatches a change in a source of pods.
func (l *Loop) configured(ctx context.Context, u kubetypes.PodUpdate) {
	logger := klog.FromContext(ctx)
	logger.V(2).Info("SyncLoop "+operation(u.Op), "source", u.Source, "pods", klog.KObjSlice(u.Pods))
	switch u.Op {
	case kubetypes.ADD:
		l.Handlers.Add(ctx, u.Pods)
	case kubetypes.UPDATE, kubetypes.DELETE:
		// A graceful deletion is an update: the pod now carries a deletion timestamp.
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

// happened handles what the PLEG saw in the runtime.
func (l *Loop) happened(ctx context.Context, e *pleg.PodLifecycleEvent) {
	// A removed container changes nothing about its pod.
	if e.Type != pleg.ContainerRemoved && l.Handlers.SyncByUID(ctx, e.ID) {
		klog.FromContext(ctx).V(2).Info("SyncLoop (PLEG): event for pod", "podUID", e.ID, "event", e)
	}
	if id, ok := e.Data.(string); ok && e.Type == pleg.ContainerDied {
		l.ContainerDied(ctx, e.ID, id)
	}
}

// syncDue hands each pod that is due to the workers, whether a source names it or not.
func (l *Loop) syncDue(ctx context.Context) {
	uids := l.Due()
	due := sets.New(uids...)
	l.Handlers.SyncIf(ctx, func(pod *v1.Pod) bool { return due.Has(pod.UID) || l.ShouldSync(pod) })
	l.Handlers.Retry(uids)
}

func (l *Loop) probed(ctx context.Context, u results.Update, probe, status string) {
	if l.Handlers.SyncByUID(ctx, u.PodUID) {
		klog.FromContext(ctx).V(1).Info("SyncLoop (probe)", "probe", probe, "status", status, "podUID", u.PodUID)
	}
}

// housekeep cleans up, once every source has reported: before, pods of a silent source would look like orphans. Pods
// that their own source wants again are started again all the same: one of them may be the API server, the source that
// has not reported.
func (l *Loop) housekeep(ctx context.Context) {
	logger := klog.FromContext(ctx)
	work := l.CleanUp
	if !l.SourcesReady.AllReady() {
		logger.V(4).Info("SyncLoop (housekeeping, only restarts): sources aren't ready yet")
		work = l.RestartPods
	}
	start := time.Now()
	if err := work(ctx); err != nil {
		logger.Error(err, "Failed cleaning pods")
	}
	if took := time.Since(start); took > slowHousekeeping {
		logger.Error(nil, "Housekeeping took longer than expected", "expected", slowHousekeeping, "actual",
			took.Round(time.Millisecond))
	}
}

// HealthCheck fails when the loop has not turned for twice the resync interval, and at least five minutes. It is the
// "syncloop" check of /healthz and of systemd's watchdog.
func (l *Loop) HealthCheck(_ *http.Request) error {
	last := l.turned.Load()
	if last != 0 && time.Since(time.Unix(0, last)) > max(2*l.ResyncInterval, minHealthWindow) {
		return fmt.Errorf("sync Loop took longer than expected")
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
