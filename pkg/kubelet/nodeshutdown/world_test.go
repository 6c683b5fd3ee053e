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

var errTest = errors.New("as the test wants it")

// world is a login manager and a node with pods. Everything that happens is noted with the seconds since it began.
type world struct {
	t     *testing.T
	began time.Time
	ctx   context.Context
	end   context.CancelFunc
	*Manager
	recorder *record.FakeRecorder

	mu sync.Mutex
	// granted is how long the machine waits, refuses why there is no connection or no lock.
	granted          time.Duration
	absent, refuses  error
	known, goingDown bool
	events           chan bool
	// listening ends when nobody listens to events any more.
	listening context.Context
	// locks counts, by lock, how often it was closed.
	locks []int
	did   []string
	pods  []*v1.Pod
	ready bool
	// takes is how long a pod takes to stop, whatever it is given; unmounting how long volumes stay mounted after that.
	takes      map[types.UID]time.Duration
	unmounting time.Duration
	// terminating by somebody else, stopped and by which status.
	terminating, readmitted map[types.UID]bool
	status                  map[types.UID]v1.PodStatus
}

// play runs the scenario in a bubble of its own time.
func play(t *testing.T, periods []plan.Period, scenario func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			t: t, began: time.Now(), granted: time.Hour, known: true, ready: true, recorder: record.NewFakeRecorder(100),
			takes: map[types.UID]time.Duration{}, terminating: map[types.UID]bool{}, readmitted: map[types.UID]bool{},
			status: map[types.UID]v1.PodStatus{},
		}
		logger, _ := ktesting.NewTestContext(t)
		w.ctx, w.end = context.WithCancel(klog.NewContext(context.Background(), logger))
		w.Manager = New(w.config(periods))
		scenario(w)
		w.end()
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
		Connect: func() (Logind, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w, w.absent
		},
		Pods: Pods{
			Active: w.active, Ready: func() bool { return is(w, &w.ready) }, Kill: fakekill.Waiting(w.kill),
			Unmounted:   w.unmounted,
			Terminating: func(uid types.UID) bool { return is(w, &w.terminating)[uid] },
			Readmitted:  func(pod *v1.Pod) bool { return w.readmitted[pod.UID] },
			Restart:     func(_ context.Context, pods []*v1.Pod) { w.note("restart %s", uids(pods)) },
		},
		SyncNode:  func(context.Context) { w.note("node down=%t", w.ShutdownStatus() != nil) },
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

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.did = append(w.did, fmt.Sprintf("%v ", time.Since(w.began).Round(time.Second).Seconds())+fmt.Sprintf(format,
		args...))
}

// expect compares what has happened since it was called last. What happens at one time is in the order of its text.
func (w *world) expect(want ...string) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	got := slices.Sorted(slices.Values(w.did))
	slices.Sort(want)
	if !slices.Equal(got, want) {
		w.t.Errorf("happened\n%q, want\n%q", got, want)
	}
	w.did = nil
}

func (w *world) Grant(_ context.Context, wanted time.Duration) (time.Duration, error) {
	w.note("grant %v", wanted)
	granted := is(w, &w.granted)
	if granted < wanted {
		return granted, errTest
	}
	return granted, nil
}

type fakeLock struct {
	w *world
	n int
}

func (l fakeLock) Close() error {
	l.w.note("unlock %d", l.n+1)
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.w.locks[l.n]++
	return nil
}

func (w *world) Inhibit() (io.Closer, error) {
	if refusal := is(w, &w.refuses); refusal != nil {
		return nil, refusal
	}
	w.mu.Lock()
	n := len(w.locks)
	w.locks = append(w.locks, 0)
	w.mu.Unlock()
	w.note("lock %d", n+1)
	return fakeLock{w, n}, nil
}

func (w *world) Watch(ctx context.Context) (Announcements, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listening != nil && w.listening.Err() == nil {
		w.t.Error("listens twice")
	}
	w.listening = ctx
	w.events = make(chan bool, 1)
	return Announcements{Events: w.events, Known: w.known, GoingDown: w.goingDown}, nil
}

func (w *world) active() []*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.pods)
}

func (w *world) kill(ctx context.Context, r podkill.Request) error {
	pod := r.Pod
	w.note("kill %s %d", pod.UID, *r.GracePeriodSeconds)
	if r.Evict {
		w.t.Errorf("%s is evicted", pod.UID)
	}
	status := v1.PodStatus{Phase: v1.PodRunning}
	r.Disruption.Apply(&status)
	w.mu.Lock()
	w.status[pod.UID] = status
	takes := w.takes[pod.UID]
	w.terminating = maps.Clone(w.terminating)
	w.terminating[pod.UID] = true
	w.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(takes):
	}
	w.mu.Lock()
	w.pods = slices.DeleteFunc(w.pods, func(p *v1.Pod) bool { return p == pod })
	w.mu.Unlock()
	w.note("stopped %s", pod.UID)
	return nil
}

func (w *world) unmounted(ctx context.Context, pods []*v1.Pod) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(w.unmounting):
		w.note("unmounted %s", uids(pods))
		return nil
	}
}

// set changes what the world is like.
func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// is reads what the world is like.
func is[T any](w *world, value *T) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *value
}

// announce waits until the announcement has taken effect.
func (w *world) announce(down bool) {
	is(w, &w.events) <- down
	synctest.Wait()
}

func (w *world) sleep(seconds int) {
	time.Sleep(time.Duration(seconds) * time.Second)
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

func (w *world) toldOf(want ...string) {
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

// add puts a pod onto the node that takes that many seconds to stop.
func (w *world) add(pod *v1.Pod, takes int) *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods = append(w.pods, pod)
	w.takes[pod.UID] = time.Duration(takes) * time.Second
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
