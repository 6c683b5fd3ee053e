package admission_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/scheduling"
	"k8s.io/kubernetes/pkg/kubelet/allocation"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/podcertificate"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	schedulerframework "k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/admission"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/escalation"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podview"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/preemption"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/syncloop"
	"github.com/plimsoll-project/plimsoll/test/fakeworkers"
)

// world is a node with ten CPUs: the real handlers of the sync loop, gate, waiting pods, preemption, pod workers and
// predicates, with a fake runtime. It must be used in a synctest bubble.
type world struct {
	*syncloop.Handlers
	// stop ends preemption; ended is closed afterwards.
	ctx     context.Context
	stop    context.CancelFunc
	ended   chan struct{}
	store   *podlifecycle.Store
	workers *podworkers.Workers
	waiting *admission.WaitingPods
	victims *preemption.Handler
	chain   lifecycle.PodAdmitHandlers
	// onKill is called for every stop request that was accepted and began a termination, onBegin for every attempt that is
	// to begin, onReject for every pod that is rejected.
	onKill   func(podkill.Request)
	onBegin  func(uid types.UID, begin func())
	onReject func(*v1.Pod, v1.PodStatus)
	// onEvent is called for every event of preemption.
	onEvent func(*v1.Pod)
	// onList is called after the active pods were listed, onHandlers when the handlers have got their list, before they
	// use it.
	onList, onHandlers func()
	// verdict is the result of the pressure check, maxWait is how long a pod may wait for the end of pressure.
	verdict func(*v1.Pod) policy.Verdict
	maxWait time.Duration

	mu sync.Mutex
	// stopTime is how long a pod takes to stop; pods that are not in it stop at once.
	stopTime map[types.UID]time.Duration
	statuses map[types.UID]v1.PodStatus
	// finish ends the stopping of pods before their stopTime.
	finish map[types.UID]chan struct{}
	// terminated are the pods that were stopped, in this order; since has the time of each.
	terminated []types.UID
	since      map[types.UID]time.Time
	shutdown   bool
}

const never = 1000 * time.Hour

// runScenario runs the scenario in a synctest bubble.
func runScenario(t *testing.T, scenario func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		scenario(w)
		w.stop()
		<-w.ended
		if err := w.workers.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func newWorld(t *testing.T) *world {
	w := &world{
		store: podlifecycle.NewStore(), onList: func() {}, onHandlers: func() {},
		verdict: func(*v1.Pod) policy.Verdict { return policy.Admitted },
		onKill:  func(podkill.Request) {}, onBegin: func(_ types.UID, begin func()) { begin() },
		onReject: func(*v1.Pod, v1.PodStatus) {}, onEvent: func(*v1.Pod) {},
		stopTime: map[types.UID]time.Duration{}, finish: map[types.UID]chan struct{}{}, since: map[types.UID]time.Time{},
		statuses: map[types.UID]v1.PodStatus{},
	}
	w.ctx, w.stop = context.WithCancel(t.Context())
	cache := kubecontainer.NewCache()
	cache.UpdateTime(time.Now().Add(never))
	recorder := noEvents{}
	w.workers = podworkers.New(podworkers.Config{
		Store: w.store, Syncer: w, Runtime: w, PodCache: cache, Queue: queue.NewBasicWorkQueue(clock.RealClock{}),
		Recorder: recorder, Overdue: w.overdue, Hastener: fakeworkers.Hastener{}, Allocation: fakeworkers.Allocation{},
		Terminations: fakeworkers.Terminations{}, EarlierStaticPods: fakeworkers.EarlierStaticPods{},
		ResyncInterval: time.Minute, BackoffPeriod: time.Second,
	})
	pods := kubepod.NewBasicPodManager()
	view := podview.New(pods, w.store, w)
	readmission := admission.NewReadmission(w, w.store)
	readmission.SetRunning(nil)
	w.waiting = admission.NewWaitingPods(admission.WaitingPodsConfig{
		Pressure: w, Status: w, Recorder: recorder, Clock: clock.RealClock{}, Victims: victimsOf{w},
		Active:       func() []*v1.Pod { defer w.onList(); return view.Active() },
		ShuttingDown: func() bool { return w.shutdown }, MaxWait: func() time.Duration { return w.maxWait },
	})
	w.victims = preemption.NewHandler(preemption.Config{
		Pods: preemptionPods{w.waiting, readmission}, Lifecycle: w.store, Kill: w.killPod, Recorder: preemptionEvents{w: w},
		EscalationExhausted: w.workers.EscalationExhausted, OnAttemptEnd: w.waiting.RequestRetry,
	})
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		w.victims.Run(w.ctx)
	}()
	predicates := admission.NewBeforeAndAfterPreemption(
		w.victims.Predicates(func(failed lifecycle.AdmissionFailureHandler) lifecycle.PodAdmitHandler {
			return lifecycle.NewPredicateAdmitHandler(node, failed, noPlugins)
		}), w.waiting, w.victims)
	early := admission.NewEarlyPreemption(predicates, w.victims)
	w.chain = admission.Chain{EarlyPreemption: early, Predicates: predicates, Shutdown: w}.Handlers()
	gate := admission.NewGate(w, readmission, w.waiting, admission.NewRejector(recorder, w))
	w.Handlers = syncloop.NewHandlers(syncloop.HandlersConfig{
		Pods: pods, Workers: w.workers, Lifecycle: w.workers, Gate: gate, Waiting: w.waiting,
		SourcesReady:         config.NewSourcesReady(func(sets.Set[string]) bool { return true }),
		Certificates:         &podcertificate.NoOpManager{},
		Statuses:             w,
		Resizes:              &syncloop.Resizes{Allocations: noResizes{}},
		RemoveDeadContainers: func(context.Context, types.UID) {},
	})
	return w
}

type victimsOf struct{ w *world }

func (v victimsOf) InProgress(uid types.UID) bool { return v.w.victims.InProgress(uid) }
func (v victimsOf) Begin(ctx context.Context, uid types.UID) {
	v.w.onBegin(uid, func() { v.w.victims.Begin(ctx, uid) })
}
func (v victimsOf) Forget(uid types.UID) { v.w.victims.Forget(uid) }

// killPod passes a request of preemption on to the pod workers.
func (w *world) killPod(ctx context.Context, r podkill.Request) (podkill.Answer, <-chan podkill.Ending) {
	answer, ended := w.workers.KillPod(ctx, r)
	if answer == podkill.Begun {
		w.onKill(r)
	}
	return answer, ended
}

type preemptionPods struct {
	waiting     *admission.WaitingPods
	readmission *admission.Readmission
}

func (p preemptionPods) IsWaiting(uid types.UID) bool { return p.waiting.IsWaiting(uid) }
func (p preemptionPods) Readmitted(pod *v1.Pod) bool  { return p.readmission.Readmitted(pod) }

func node(context.Context, bool) (*v1.Node, error) {
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("10"), v1.ResourcePods: resource.MustParse("1k")}
	return &v1.Node{Status: v1.NodeStatus{Allocatable: capacity, Capacity: capacity}}, nil
}

func noPlugins(*schedulerframework.NodeInfo, *lifecycle.PodAdmitAttributes) error { return nil }

// noResizes is an allocation manager without resizes.
type noResizes struct{ allocation.Manager }

func (noResizes) RemovePod(types.UID) {}

// noEvents is an event recorder.
type noEvents struct{ record.EventRecorder }

func (noEvents) Event(runtime.Object, string, string, string)          {}
func (noEvents) Eventf(runtime.Object, string, string, string, ...any) {}

// preemptionEvents is the event recorder of preemption.
type preemptionEvents struct {
	noEvents
	w *world
}

func (e preemptionEvents) Eventf(pod runtime.Object, _, _, _ string, _ ...any) {
	e.w.onEvent(pod.(*v1.Pod))
}

// AddPod runs the chain as stock's allocation manager does.
func (w *world) AddPod(active []*v1.Pod, pod *v1.Pod) (bool, string, string) {
	w.onHandlers()
	others := slices.DeleteFunc(slices.Clone(active), func(p *v1.Pod) bool { return p.UID == pod.UID })
	attrs := &lifecycle.PodAdmitAttributes{Pod: pod, OtherPods: others, Operation: lifecycle.AddOperation}
	for _, handler := range w.chain {
		if result := handler.Admit(attrs); !result.Admit {
			return false, result.Reason, result.Message
		}
	}
	return true, "", ""
}

// Admit implements lifecycle.PodAdmitHandler as the shutdown manager does.
func (w *world) Admit(*lifecycle.PodAdmitAttributes) lifecycle.PodAdmitResult {
	return lifecycle.PodAdmitResult{Admit: !w.shutdown, Reason: "NodeShutdown"}
}

// AdmitOrWait implements admission.Pressure.
func (w *world) AdmitOrWait(pod *v1.Pod) (policy.Verdict, string) { return w.verdict(pod), "" }

func (w *world) GetContainerResourceAllocation(types.UID, string) (v1.ResourceRequirements, bool) {
	return v1.ResourceRequirements{}, false
}

func (w *world) SetPodStatus(_ klog.Logger, pod *v1.Pod, status v1.PodStatus) (v1.PodStatus, bool) {
	if status.Phase == v1.PodFailed {
		w.onReject(pod, status)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.statuses[pod.UID] = status
	return status, true
}

func (w *world) GetPodStatus(uid types.UID) (v1.PodStatus, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	status, ok := w.statuses[uid]
	return status, ok
}

// RemoveOrphanedStatuses completes syncloop.Statuses. There are no static pods here.
func (w *world) RemoveOrphanedStatuses(klog.Logger, map[types.UID]bool) {}

// Sync implements podworkers.Syncer: containers run at once.
func (w *world) Sync(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
	return podsync.SyncResult{}, nil
}

// Terminate implements podworkers.Syncer.
func (w *world) Terminate(ctx context.Context, request podsync.TerminateRequest) error {
	w.mu.Lock()
	w.terminated = append(w.terminated, request.Pod.UID)
	w.since[request.Pod.UID] = time.Now()
	stopTime, end := w.stopTime[request.Pod.UID], make(chan struct{})
	w.finish[request.Pod.UID] = end
	w.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-end:
	case <-time.After(stopTime):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, request.Pod.UID)
	delete(w.finish, request.Pod.UID)
	return nil
}

// lastStepAfter is when the last escalation step is taken, after the end of the grace period.
var lastStepAfter = escalation.DefaultLimits().Longest() - escalation.DefaultLimits().SilentDelay

// overdue is what podsync reports of pods that do not stop, with a responsive runtime.
func (w *world) overdue() map[types.UID]escalation.Overdue {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[types.UID]escalation.Overdue{}
	limits := escalation.DefaultLimits()
	for uid, since := range w.since {
		if late := time.Since(since.Add(grace)); late >= lastStepAfter {
			found[uid] = escalation.Overdue{Step: escalation.Report}
		} else if late >= limits.Slack+limits.Margin {
			found[uid] = escalation.Overdue{Step: escalation.Warn, Seen: time.Now()}
		}
	}
	return found
}

func (w *world) CleanUp(context.Context, *v1.Pod, *kubecontainer.PodStatus) error { return nil }

func (w *world) TerminateRuntimePod(context.Context, *kubecontainer.Pod) error { return nil }

// grace is the grace period of every pod.
const grace = 10 * time.Second

// newPod is a pod that requests that many thousandths of a CPU.
func newPod(name string, milli int64) *v1.Pod {
	priority, grace := int32(0), int64(grace.Seconds())
	requests := v1.ResourceList{v1.ResourceCPU: *resource.NewMilliQuantity(milli, resource.DecimalSI)}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID(name),
			Annotations: map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.ApiserverSource},
		},
		Spec: v1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace, Containers: []v1.Container{{
			Name: "c", Resources: v1.ResourceRequirements{Requests: requests},
		}}},
	}
}

// critical is a pod that may preempt others.
func critical(name string, milli int64) *v1.Pod {
	pod := newPod(name, milli)
	*pod.Spec.Priority = scheduling.SystemCriticalPriority
	return pod
}

// add adds pods one after the other.
func (w *world) add(pods ...*v1.Pod) {
	for _, pod := range pods {
		w.Add(w.ctx, []*v1.Pod{pod})
	}
	synctest.Wait()
}

// finishStopping stops a terminating pod at once.
func (w *world) finishStopping(uid types.UID) {
	w.mu.Lock()
	if end := w.finish[uid]; end != nil {
		close(end)
		delete(w.finish, uid)
	}
	w.mu.Unlock()
	synctest.Wait()
}

// kill stops a pod for another reason than preemption.
func (w *world) kill(pod *v1.Pod) {
	w.workers.UpdatePod(w.ctx, podworkers.Update{UpdateType: kubetypes.SyncPodKill, Pod: pod})
	synctest.Wait()
}

// delete delivers the update of a pod that was deleted in the API.
func (w *world) delete(pod *v1.Pod) {
	deleted := pod.DeepCopy()
	deleted.DeletionTimestamp = new(metav1.Now())
	deleted.DeletionGracePeriodSeconds = pod.Spec.TerminationGracePeriodSeconds
	w.Update(w.ctx, []*v1.Pod{deleted})
	synctest.Wait()
}

// advance advances the time; once a second the sync loop checks the waiting pods.
func (w *world) advance(seconds int) {
	for range seconds {
		<-time.After(time.Second)
		synctest.Wait()
		w.RetryWaiting(w.ctx)
		synctest.Wait()
	}
}

func (w *world) stopped() []types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.terminated)
}

// runs is true when the pod was admitted and is not terminating.
func (w *world) runs(pod *v1.Pod) bool {
	state, _ := w.store.State(pod.UID)
	return state.Phase == podlifecycle.Syncing
}

// wantStopped checks which pods were stopped so far, in any order: victims of one attempt are stopped in parallel.
func (w *world) wantStopped(t *testing.T, want ...types.UID) {
	t.Helper()
	if got := w.stopped(); !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("stopped: %v, want %v", got, want)
	}
}

func (w *world) wantRuns(t *testing.T, pod *v1.Pod) {
	t.Helper()
	if !w.runs(pod) {
		status, _ := w.GetPodStatus(pod.UID)
		t.Errorf("pod %s does not run: %v %s %s", pod.Name, status.Phase, status.Reason, status.Message)
	}
}
