package nodeshutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podkill"
	"github.com/plimsoll-project/plimsoll/test/fakekill"
)

var errTest = errors.New("injected error")

// world implements logind and a node with pods. It records calls with the seconds since its creation.
type world struct {
	t     *testing.T
	begin time.Time
	// ctx is the context of the agent; stopAgent ends it.
	ctx       context.Context
	stopAgent context.CancelFunc
	*Manager
	recorder *record.FakeRecorder

	mu sync.Mutex
	// maxDelay is how long logind waits for locks.
	maxDelay time.Duration
	// connectErr, delayErr and inhibitErr are the errors of connecting, of reading the delay and of taking a lock.
	connectErr, delayErr, inhibitErr error
	known, shuttingDown              bool
	// hangs is true while logind answers no call.
	hangs  bool
	events chan Announcement
	// subscription ends when the manager does not read events any more.
	subscription context.Context
	// locks has for each lock how often it was closed.
	locks []int
	calls []string
	pods  []*v1.Pod
	ready bool
	// stopTime is how long a pod takes to stop, whatever its grace period is; unmountTime is how long its volumes stay
	// mounted after that.
	stopTime    map[types.UID]time.Duration
	unmountTime time.Duration
	// terminating are the pods that are terminating; status has the statuses after the kills.
	terminating, readmitted map[types.UID]bool
	status                  map[types.UID]v1.PodStatus
}

// play runs a scenario in a bubble of testing/synctest. Afterwards it checks that each lock was closed once.
func play(t *testing.T, periods []plan.Period, scenario func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, begin: time.Now(), maxDelay: time.Hour, known: true, ready: true, recorder: record.NewFakeRecorder(100),
			stopTime: map[types.UID]time.Duration{}, terminating: map[types.UID]bool{}, readmitted: map[types.UID]bool{},
			status: map[types.UID]v1.PodStatus{},
		}
		logger, _ := ktesting.NewTestContext(t)
		w.ctx, w.stopAgent = context.WithCancel(klog.NewContext(context.Background(), logger))
		w.Manager = New(w.config(periods))
		scenario(w)
		w.stopAgent()
		w.Wait()
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		for i, closed := range w.locks {
			if closed != 1 {
				t.Errorf("lock %d was closed %d times", i+1, closed)
			}
		}
	})
}

func (w *world) config(periods []plan.Period) Config {
	return Config{
		Periods: periods,
		Connect: func(context.Context) (Logind, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w, w.connectErr
		},
		Pods: Pods{
			Active: w.active, SourcesReady: func() bool { return get(w, &w.ready) }, Kill: fakekill.Waiting(w.kill),
			WaitForUnmount: w.waitForUnmount,
			Terminating:    func(uid types.UID) bool { return get(w, &w.terminating)[uid] },
			Readmitted:     func(pod *v1.Pod) bool { return w.readmitted[pod.UID] },
			Restart:        func(_ context.Context, pods []*v1.Pod) { w.record("restart %s", uids(pods)) },
		},
		SyncNode:  func(context.Context) { w.record("node down=%t", w.ShutdownStatus() != nil) },
		Recorder:  w.recorder,
		NodeRef:   &v1.ObjectReference{Kind: "Node", Name: "node"},
		StateFile: filepath.Join(w.t.TempDir(), StateFileName),
		Clock:     clock.RealClock{},
	}
}

func uids(pods []*v1.Pod) (out []types.UID) {
	for _, pod := range pods {
		out = append(out, pod.UID)
	}
	return out
}

func (w *world) record(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, fmt.Sprintf("%v ", time.Since(w.begin).Round(time.Second).Seconds())+fmt.Sprintf(format,
		args...))
}

// expect compares the calls since its last call. Calls at the same time are in alphabetical order.
func (w *world) expect(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := slices.Sorted(slices.Values(w.calls))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("calls\n%q, want\n%q", got, want)
	}
	w.calls = nil
}

// answer returns an error if logind does not answer in time, as package logind does.
func (w *world) answer(ctx context.Context) error {
	if !get(w, &w.hangs) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

func (w *world) EnsureInhibitDelay(ctx context.Context, minimum time.Duration) (time.Duration, error) {
	if err := w.answer(ctx); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrDelayUnknown, err)
	}
	w.record("delay %v", minimum)
	if err := get(w, &w.delayErr); err != nil {
		return 0, err
	}
	delay := get(w, &w.maxDelay)
	if delay < minimum {
		return delay, errTest
	}
	return delay, nil
}

type fakeLock struct {
	w *world
	n int
}

func (l fakeLock) Close() error {
	l.w.record("unlock %d", l.n+1)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.locks[l.n]++
	return nil
}

func (w *world) Inhibit(ctx context.Context) (io.Closer, error) {
	if err := w.answer(ctx); err != nil {
		return nil, err
	}
	if err := get(w, &w.inhibitErr); err != nil {
		return nil, err
	}
	w.mu.Lock()
	n := len(w.locks)
	w.locks = append(w.locks, 0)
	w.mu.Unlock()
	w.record("lock %d", n+1)
	return fakeLock{w, n}, nil
}

func (w *world) Watch(ctx context.Context) (<-chan Announcement, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.subscription != nil && w.subscription.Err() == nil {
		w.t.Error("a second subscription")
	}
	w.subscription = ctx
	w.events = make(chan Announcement, 2)
	return w.events, nil
}

func (w *world) ShuttingDown(ctx context.Context) (bool, error) {
	if err := w.answer(ctx); err != nil {
		return false, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.known {
		return false, errTest
	}
	return w.shuttingDown, nil
}

func (w *world) active() []*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.pods)
}

func (w *world) kill(ctx context.Context, r podkill.Request) error {
	pod := r.Pod
	w.record("kill %s %d", pod.UID, *r.GracePeriodSeconds)
	if r.Evict {
		w.t.Errorf("%s is evicted", pod.UID)
	}
	status := v1.PodStatus{Phase: v1.PodRunning}
	r.Disruption.Apply(&status)
	w.mu.Lock()
	w.status[pod.UID] = status
	stopTime := w.stopTime[pod.UID]
	w.terminating = maps.Clone(w.terminating)
	w.terminating[pod.UID] = true
	w.mu.Unlock()
	stopped := make(chan struct{})
	stop := time.AfterFunc(stopTime, func() {
		w.mu.Lock()
		w.pods = slices.DeleteFunc(w.pods, func(p *v1.Pod) bool { return p == pod })
		w.mu.Unlock()
		w.record("stopped %s", pod.UID)
		close(stopped)
	})
	select {
	case <-ctx.Done():
		stop.Stop()
		return ctx.Err()
	case <-time.After(max(10*time.Second, time.Duration(*r.GracePeriodSeconds)*time.Second*3/2)):
		return errors.New("overdue")
	case <-stopped:
		return nil
	}
}

func (w *world) waitForUnmount(ctx context.Context, pods []*v1.Pod) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(w.unmountTime):
		w.record("unmounted %s", uids(pods))
		return nil
	}
}

// set changes fields of the world.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// get reads a field of the world.
func get[T any](w *world, value *T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *value
}

// announce sends an announcement or a cancellation, not as logind, and waits until it has taken effect.
func (w *world) announce(shuttingDown bool) {
	get(w, &w.events) <- Announcement{ShuttingDown: shuttingDown}
	synctest.Wait()
}

func (w *world) sleep(seconds int) { w.sleepFor(time.Duration(seconds) * time.Second) }

func (w *world) sleepFor(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) admits(pod *v1.Pod) bool {
	w.t.Helper()
	result := w.Admit(&lifecycle.PodAdmitAttributes{Pod: pod})
	if !result.Admit && (result.Reason != "NodeShutdown" ||
		result.Message != "Pod was rejected as the node is shutting down.") {
		w.t.Errorf("rejected for %s: %s", result.Reason, result.Message)
	}
	return result.Admit
}

// expectEvents compares the events since its last call; each argument is the end of a message.
func (w *world) expectEvents(want ...string) {
	w.t.Helper()
	for _, text := range want {
		if got, want := <-w.recorder.Events, "Normal Shutdown Shutdown manager detected shutdown "+text; got != want {
			w.t.Errorf("event %q, want %q", got, want)
		}
	}
	if len(w.recorder.Events) > 0 {
		w.t.Errorf("another event: %s", <-w.recorder.Events)
	}
}

// add adds a pod to the node, which takes that many seconds to stop.
func (w *world) add(pod *v1.Pod, stopTime int) *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods = append(w.pods, pod)
	w.stopTime[pod.UID] = time.Duration(stopTime) * time.Second
	return pod
}

func aPod(uid types.UID, priority int32, grace int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: uid, Name: string(uid), Namespace: "ns", Generation: 3},
		Spec: v1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace,
			RestartPolicy: v1.RestartPolicyAlways},
	}
}

func static(pod *v1.Pod) *v1.Pod {
	pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
	return pod
}

func ofDaemonSet(pod *v1.Pod) *v1.Pod {
	yes := true
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Controller: &yes}}
	return pod
}
