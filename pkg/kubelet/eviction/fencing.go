package eviction

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	// fenceGrace is the time that a fenced pod has to exit after SIGTERM. The runtime would leave it at least two
	// seconds.
	fenceGrace = time.Second
	// fencePeriod is the time between two checks of a fence, fenceEndPeriod that after the pod was killed.
	fencePeriod, fenceEndPeriod = 20 * time.Millisecond, time.Second
	// fenceRepeats is how often a fence is set again that another program has replaced.
	fenceRepeats = 3
	// preparePause is the time between two preparations of fences: two pods may grow about equally fast.
	preparePause = 100 * time.Millisecond
	// sinksHeld is the longest time for which sinks wait for fences to be set: longer than that takes.
	sinksHeld = 50 * time.Millisecond
	// fenceKillTime is how long a kill by the cgroup waits for the end of all processes. At the stop of the manager the
	// limit is restored after that.
	fenceKillTime = 700 * time.Millisecond
)

// Fencer limits what victims may still use, and kills them without the container runtime. Package eviction/fence has
// the limits, package cgroupkill the kill.
type Fencer interface {
	// Prepare makes the next call of Fence faster if it is for this pod. It returns soon.
	Prepare(pod *v1.Pod)
	// Fence limits the pod. It returns soon. If the pod has no cgroup any more, both results are nil.
	Fence(pod *v1.Pod, f policy.Fence) (Fence, error)
	// Kill kills all processes of the pod. It returns when there are none, or with an error when ctx ends before.
	Kill(ctx context.Context, pod *v1.Pod) error
}

// Fence is the fence of one pod.
type Fence interface {
	// At returns the limit: bytes of memory, or processes.
	At() int64
	Check() (FenceState, error)
	// Set sets the fence again.
	Set() error
	// OOMKilled reports whether the OOM killer has killed a process of the pod since the fence was set because the limit
	// of the pod, or of one of its containers, was exceeded. It does not wait.
	OOMKilled() bool
	// Restore restores the limit of the pod. It is called once, after which only At may be called.
	Restore() error
}

// FenceState is what became of a fence.
type FenceState struct {
	// Gone: the pod has no cgroup any more. Replaced: another program has raised the limit. Hit: the pod has used all
	// that the fence leaves.
	Gone, Replaced, Hit bool
}

// FenceOutcome is how a fenced pod ended. Its values are labels of metrics.
type FenceOutcome string

// The outcomes.
const (
	// FenceExited: the pod has ended without a kill by its cgroup.
	FenceExited FenceOutcome = "Exited"
	// FenceKilled: the pod was killed by its cgroup.
	FenceKilled FenceOutcome = "Killed"
	// FenceOOMKilled: the OOM killer has killed a process of the pod at the fence, before the pod was killed.
	FenceOOMKilled FenceOutcome = "OOMKilled"
	// FenceNotSet: the fence could not be set, so that the pod was killed by its cgroup at once.
	FenceNotSet FenceOutcome = "NotSet"
)

// FenceReport is what results say about a fence.
type FenceReport struct {
	// At is the limit, bytes of memory or, if PIDs, a number of processes; zero if it could not be set.
	At   int64
	PIDs bool
	// Outcome is empty while the pod has not ended.
	Outcome FenceOutcome
	// Reason is why the pod was killed by its cgroup, empty if it was not.
	Reason string
}

// String describes the fence for the status of the pod and events: what was done to the pod.
func (r FenceReport) String() string {
	at := fmt.Sprintf("fenced at %dMi of memory", r.At>>20)
	if r.PIDs {
		at = fmt.Sprintf("fenced at %d processes", r.At)
	}
	switch r.Outcome {
	case FenceExited:
		return at + " and ended by itself"
	case FenceKilled:
		return at + " and killed by its cgroup"
	case FenceOOMKilled:
		return at + " and ended by the OOM killer inside the pod"
	case FenceNotSet:
		return "killed by its cgroup, since no fence could be set"
	}
	return at
}

// The reasons for a kill by the cgroup.
const (
	killedNotSet   = "the fence could not be set"
	killedOver     = "its grace period is over"
	killedHit      = "it has hit its fence"
	killedHalved   = "half of what was left is used up"
	killedReplaced = "another program replaces its fence"
	killedUnread   = "its fence cannot be read"
	killedStopping = "the agent stops"
)

// fencedPods are the pods with a fence: a pod has one at a time.
type fencedPods struct {
	mu   sync.Mutex
	pods map[types.UID]bool
}

// add returns false if the pod has a fence.
func (f *fencedPods) add(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pods[uid] {
		return false
	}
	if f.pods == nil {
		f.pods = map[types.UID]bool{}
	}
	f.pods[uid] = true
	return true
}

// Fenced reports whether a victim has a fence, or may get one at any time.
func (m *Manager) Fenced(uid types.UID) bool { return m.fenced.has(uid) }

func (f *fencedPods) has(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pods[uid]
}

func (f *fencedPods) remove(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, uid)
}

// fencing is the fence of a victim, from the request to kill it to its end.
type fencing struct {
	m        *Manager
	pod      *v1.Pod
	victim   *policy.Victim
	decision uint64
	// left is what the node had left when the eviction was decided.
	left int64
	// late gets the fence of a victim that has begun to grow after the decision; nil for one that has a fence from the
	// beginning.
	late chan *policy.Fence
	// settled is closed when the fence is set, or it is certain that there will be none.
	settled chan struct{}
	// over is closed when the kill request has ended, after stopped is set to whether the pod had stopped then.
	over    chan struct{}
	stopped bool
	// dropped is true if the pod gets no fence: the request has not changed its lifecycle, or it has ended before.
	dropped bool
	// grace is what the pod has left of its time to exit, from the attempt to set the fence on; failure is the error of
	// that.
	grace   clock.Timer
	failure error

	mu sync.Mutex
	// fence is nil before it is set, without one, and after it was lifted.
	fence  Fence
	report FenceReport
	killed bool
}

// newFencing returns nil for a victim that has no fence and gets none later. A victim that is being stopped already
// gets its fence by the earlier request.
func (m *Manager) newFencing(decision uint64, pod *v1.Pod, v *policy.Victim) *fencing {
	if earlier := m.waiting[v.Pod.UID]; earlier != nil && v.Fence != nil && m.fenced.has(v.Pod.UID) {
		m.setLate(earlier, v.Fence)
		return nil
	}
	if m.config.Fencer == nil || (v.Fence == nil && !m.mayBeFencedLater(v)) || !m.fenced.add(v.Pod.UID) {
		return nil
	}
	f := &fencing{m: m, pod: pod, victim: v, decision: decision, settled: make(chan struct{}), over: make(chan struct{})}
	if v.Fence == nil {
		f.late = make(chan *policy.Fence, 1)
		m.waiting[v.Pod.UID] = f
		return f
	}
	f.left, f.report.PIDs = m.leftFor(v), v.Fence.PIDs
	m.setting = append(m.setting, f)
	return f
}

// setLate has the fence set of a victim that is being stopped without one.
func (m *Manager) setLate(f *fencing, fence *policy.Fence) {
	delete(m.waiting, f.pod.UID)
	m.setting = append(m.setting, f)
	f.late <- fence
}

// releaseSinks ends a hold on the sinks when the fences that are being set are set, after sinksHeld at the latest.
func (m *Manager) releaseSinks(ctx context.Context, hold *hold) {
	fences := m.setting
	if m.setting = nil; len(fences) == 0 {
		m.sinks.release(ctx, hold)
		return
	}
	m.work.Go(func() {
		defer m.sinks.release(ctx, hold)
		timer := m.config.Clock.NewTimer(sinksHeld)
		defer timer.Stop()
		for _, f := range fences {
			select {
			case <-f.settled:
			case <-timer.C():
				return
			case <-ctx.Done():
				return
			}
		}
	})
}

// prepareFence prepares a fence on the pod that grows fastest, if a threshold will be met soon.
func (m *Manager) prepareFence() {
	l, now := &m.loop, m.clock.now()
	uid := l.watcher.Cause()
	if uid == "" || uid == l.prepared || m.config.Fencer == nil || now.Sub(l.preparedAt) < preparePause {
		return
	}
	if pod, ok := m.config.PodByUID(uid); ok {
		l.prepared, l.preparedAt = uid, now
		m.work.Go(func() { m.config.Fencer.Prepare(pod) })
	}
}

// mayBeFencedLater reports whether a victim without a fence gets one if it begins to grow: that of a threshold of
// memory does.
func (m *Manager) mayBeFencedLater(v *policy.Victim) bool {
	memory := v.Cause.Signal == snapshot.MemoryAvailable || v.Cause.Signal == snapshot.AllocatableMemoryAvailable
	threshold := v.Cause.Kind == policy.HardThreshold || v.Cause.Kind == policy.SoftThreshold
	return m.loop.rules.Fence && memory && threshold
}

// fenceLate decides about the victims without a fence that are being stopped, after a decision about the same snapshot:
// those of a soft threshold while a hard one is met. Only the goroutine of Run calls it.
func (m *Manager) fenceLate(s *snapshot.Snapshot, d *policy.Decision) {
	maps.DeleteFunc(m.waiting, func(uid types.UID, _ *fencing) bool { return !m.fenced.has(uid) })
	if len(m.waiting) == 0 {
		return
	}
	hardMet := d.Condition(v1.NodeMemoryPressure).HardMet
	waits := func(uid types.UID) bool {
		f := m.waiting[uid]
		return f != nil && (hardMet || f.victim.Cause.Kind == policy.HardThreshold)
	}
	for uid, fence := range policy.LateFences(s, &m.loop.rules, d, waits) {
		m.setLate(m.waiting[uid], fence)
	}
}

// awaitFence waits for the fence of a victim that gets it later. It returns false if the pod has ended, or the manager
// stops, before. The request may end first: a runtime that hangs makes it overdue, and the pod is still being stopped.
func (f *fencing) awaitFence(ctx context.Context) bool {
	ticker := f.m.config.Clock.NewTicker(fenceEndPeriod)
	defer ticker.Stop()
	var overdue <-chan time.Time
	for over := f.over; ; {
		select {
		case fence := <-f.late:
			fenced := *f.victim
			fenced.Fence = fence
			f.victim, f.left = &fenced, f.m.leftFor(&fenced)
			f.mu.Lock()
			f.report.PIDs = fence.PIDs
			f.mu.Unlock()
			return true
		case <-over:
			if f.stopped {
				return false
			}
			over, overdue = nil, ticker.C()
		case <-overdue:
			if f.m.config.PodStopped(f.pod.UID) {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
}

// leftFor returns what the last round found left of what the victim is fenced for.
func (m *Manager) leftFor(v *policy.Victim) int64 {
	if v.Fence.PIDs {
		return m.left.pids.Load()
	}
	return m.left.memory.Load()
}

// observeLeft records what is left, for the goroutines of fenced pods. What is unknown is not little.
func (m *Manager) observeLeft(s *snapshot.Snapshot) {
	least := func(signals ...snapshot.Signal) int64 {
		left := int64(math.MaxInt64)
		for _, sig := range signals {
			if o := &s.Signals[sig]; o.Known() {
				left = min(left, o.Available)
			}
		}
		return left
	}
	m.left.memory.Store(least(snapshot.MemoryAvailable, snapshot.AllocatableMemoryAvailable))
	m.left.pids.Store(least(snapshot.PIDAvailable))
}

// detail describes the fence for the status of the pod. It is called at any time, also by goroutines of the pod
// workers.
func (f *fencing) detail() string {
	r := f.current()
	if r.At == 0 && r.Outcome == "" {
		return ""
	}
	return "The pod was " + r.String() + ". "
}

// current returns the report, with the outcome if the pod has ended now.
func (f *fencing) current() FenceReport {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.currentLocked()
}

func (f *fencing) currentLocked() FenceReport {
	r := f.report
	switch {
	case r.Outcome != "":
	case f.fence != nil && f.fence.OOMKilled():
		r.Outcome = FenceOOMKilled
	case f.killed:
		r.Outcome = FenceKilled
	case f.fence != nil:
		r.Outcome = FenceExited
	}
	return r
}

// answered sets the fence, unless the victim gets it later. A request that did not change the lifecycle of the pod
// fences nothing. f may be nil.
func (f *fencing) answered(answer podkill.Answer) {
	switch {
	case f == nil:
	case answer != podkill.Begun && answer != podkill.Hastened:
		f.drop()
	case f.late == nil:
		f.set()
	}
}

// drop gives up the fence. It is called once, and not after the fence was set.
func (f *fencing) drop() {
	f.dropped = true
	f.m.fenced.remove(f.pod.UID)
	close(f.settled)
}

// follow follows the fence until the pod has ended, in a goroutine of its own. It is called after answered. f may be
// nil.
func (f *fencing) follow(ctx context.Context) {
	if f == nil || f.dropped {
		return
	}
	f.m.work.Go(func() {
		if f.late != nil {
			if !f.awaitFence(ctx) {
				f.drop()
				return
			}
			f.set()
		}
		if !f.dropped {
			f.run(ctx)
			f.m.fenced.remove(f.pod.UID)
		}
	})
}

// ended is called when the kill request has ended. f may be nil.
func (f *fencing) ended(e podkill.Ending) {
	if f != nil {
		f.stopped = e.Outcome == podkill.Stopped
		close(f.over)
	}
}

// set sets the fence. It returns soon.
func (f *fencing) set() {
	f.grace = f.m.config.Clock.NewTimer(fenceGrace)
	fence, err := f.m.config.Fencer.Fence(f.pod, *f.victim.Fence)
	if fence == nil && err == nil {
		f.grace.Stop()
		f.drop() // The pod has ended.
		return
	}
	defer close(f.settled)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failure = err; err != nil {
		f.report.Outcome = FenceNotSet
	} else {
		f.fence, f.report.At = fence, fence.At()
	}
}

// run kills the pod by its cgroup when it is time to, and lifts the fence when the pod has ended.
func (f *fencing) run(ctx context.Context) {
	defer f.grace.Stop()
	f.mu.Lock()
	report := f.report
	f.mu.Unlock()
	f.result(ctx, PodFenced, report, f.failure)
	reason := killedNotSet
	if f.failure == nil {
		reason = f.await(ctx, f.grace.C())
	}
	if reason != "" {
		f.awaitEnd(ctx, f.kill(ctx, reason))
	}
	f.lift(ctx)
}

// await returns why the pod must be killed by its cgroup now, or an empty reason when it has ended.
func (f *fencing) await(ctx context.Context, grace <-chan time.Time) (reason string) {
	ticker := f.m.config.Clock.NewTicker(fencePeriod)
	defer ticker.Stop()
	for repeats := 0; ; {
		select {
		case <-f.over:
			switch {
			case f.stopped:
				return ""
			case ctx.Err() != nil: // The end of ctx ends requests too.
				return killedStopping
			}
			return killedOver
		case <-ctx.Done():
			return killedStopping
		case <-grace:
			return killedOver
		case <-ticker.C():
		}
		state, err := f.fence.Check()
		switch {
		case err != nil:
			klog.FromContext(ctx).Error(err, "Failed to read the fence of an evicted pod", "pod", klog.KObj(f.pod))
			return killedUnread
		case state.Gone:
			return ""
		case state.Hit:
			return killedHit
		case f.m.leftFor(f.victim) <= f.left/2:
			return killedHalved
		case !state.Replaced:
			continue
		case repeats == fenceRepeats:
			return killedReplaced
		}
		repeats++
		if err := f.fence.Set(); err != nil {
			klog.FromContext(ctx).Error(err, "Failed to set the fence of an evicted pod again", "pod", klog.KObj(f.pod))
			return killedNotSet
		}
	}
}

// kill kills the pod by its cgroup, and reports whether it has ended. It waits for that for a short time, also when the
// manager stops.
func (f *fencing) kill(ctx context.Context, reason string) (ended bool) {
	f.mu.Lock()
	if f.currentLocked().Outcome == FenceOOMKilled {
		f.report.Outcome = FenceOOMKilled
	}
	f.killed, f.report.Reason = true, reason
	f.mu.Unlock()
	logger := klog.FromContext(ctx)
	logger.Info("Killing evicted pod by its cgroup", "pod", klog.KObj(f.pod), "podUID", f.pod.UID, "reason", reason)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), fenceKillTime)
	defer cancel()
	err := f.m.config.Fencer.Kill(bounded, f.pod)
	if err != nil {
		logger.Error(err, "Failed to kill evicted pod by its cgroup", "pod", klog.KObj(f.pod), "podUID", f.pod.UID)
	}
	return err == nil
}

// awaitEnd waits until the pod has stopped, or the manager stops. A kill that has failed is repeated.
func (f *fencing) awaitEnd(ctx context.Context, ended bool) {
	ticker := f.m.config.Clock.NewTicker(fenceEndPeriod)
	defer ticker.Stop()
	for over := f.over; !f.m.config.PodStopped(f.pod.UID); {
		select {
		case <-over:
			if f.stopped {
				return
			}
			over = nil
		case <-ctx.Done():
			return
		case <-ticker.C():
			ended = ended || f.kill(ctx, f.current().Reason)
		}
	}
}

// lift restores the limit and reports how the pod ended.
func (f *fencing) lift(ctx context.Context) {
	f.mu.Lock()
	f.report = f.currentLocked()
	report, fence := f.report, f.fence
	f.fence = nil
	f.mu.Unlock()
	var err error
	if fence != nil {
		err = fence.Restore()
	}
	f.result(ctx, FenceEnded, report, err)
}

func (f *fencing) result(ctx context.Context, kind ResultKind, report FenceReport, err error) {
	f.m.sinks.result(ctx, &Result{
		Decision: f.decision, At: f.m.clock.now(), Kind: kind, Victim: f.victim, Fence: &report, Err: err,
	})
}
