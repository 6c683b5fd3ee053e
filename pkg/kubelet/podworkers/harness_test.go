package podworkers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/kubelet/util/queue"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
	"github.com/plimsoll-project/plimsoll/test/fakeworkers"
)

const (
	resync  = time.Minute
	backoff = 10 * time.Second
)

// node is a node with scripted operations, the real status cache, a PLEG that updates the cache every second, and the
// real work queue. It must be used in a synctest bubble.
type node struct {
	t *testing.T
	*Workers
	cache  kubecontainer.Cache
	queue  queue.WorkQueue
	events *eventLog
	script *scriptedSyncer

	stopPLEG context.CancelFunc
	plegGone chan struct{}
}

// bubble runs a test with a node in a synctest bubble, and stops the node.
func bubble(t *testing.T, test func(n *node), options ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, options...)
		defer n.close()
		test(n)
	})
}

func newNode(t *testing.T, options ...func(*Config)) *node {
	n := &node{
		t:      t,
		cache:  kubecontainer.NewCache(),
		queue:  queue.NewBasicWorkQueue(clock.RealClock{}),
		events: &eventLog{},
		script: newScriptedSyncer(t),
	}
	n.startPLEG()
	cfg := Config{
		Store:          podlifecycle.NewStore(),
		Syncer:         n.script,
		Runtime:        n.script,
		PodCache:       n.cache,
		Queue:          n.queue,
		Recorder:       n.events,
		ResyncInterval: resync,
		BackoffPeriod:  backoff,

		Hastener: fakeworkers.Hastener{}, Allocation: fakeworkers.Allocation{}, Terminations: fakeworkers.Terminations{},
		Overdue: fakeworkers.NoneOverdue, EarlierStaticPods: fakeworkers.EarlierStaticPods{},
	}
	for _, option := range options {
		option(&cfg)
	}
	n.Workers = New(cfg)
	return n
}

func (n *node) startPLEG() {
	ctx, cancel := context.WithCancel(context.Background())
	n.stopPLEG, n.plegGone = cancel, make(chan struct{})
	n.cache.UpdateTime(time.Now())
	go func() {
		defer close(n.plegGone)
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
				n.cache.UpdateTime(time.Now())
			}
		}
	}()
}

// breakPLEG stops the PLEG, so that the status cache becomes stale.
func (n *node) breakPLEG() {
	n.stopPLEG()
	<-n.plegGone
}

func (n *node) close() {
	n.breakPLEG()
	if err := n.Stop(context.Background()); err != nil {
		n.t.Error(err)
	}
	n.cache.UpdateTime(time.Now().Add(time.Hour)) // ends all calls of GetNewerThan
	synctest.Wait()
}

// advance advances the time by d, and waits until all goroutines are blocked.
func (n *node) advance(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func (n *node) send(kind kubetypes.SyncPodType, pod *v1.Pod, kill ...*KillOptions) {
	update := Update{UpdateType: kind, Pod: pod, StartTime: time.Now()}
	if len(kill) > 0 {
		update.Kill = kill[0]
	}
	n.UpdatePod(context.Background(), update)
}

func (n *node) create(pod *v1.Pod) { n.send(kubetypes.SyncPodCreate, pod) }

// createAndDrop creates a pod and drops it before its worker can take the first update. Between two calls of UpdatePod
// the worker may begin a sync.
func (n *node) createAndDrop(pod *v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, kind := range []kubetypes.SyncPodType{kubetypes.SyncPodCreate, kubetypes.SyncPodKill} {
		n.update(context.Background(), Update{UpdateType: kind, Pod: pod, StartTime: time.Now()})
	}
}

// start creates a pod and waits for its first sync.
func (n *node) start(pod *v1.Pod) {
	n.create(pod)
	synctest.Wait()
}

func (n *node) state(pod *v1.Pod) podlifecycle.State {
	state, _ := n.cfg.Store.State(pod.UID)
	return state
}

func (n *node) phase(pod *v1.Pod) podlifecycle.Phase { return n.state(pod).Phase }

func (n *node) expectPhase(pod *v1.Pod, want podlifecycle.Phase) {
	n.t.Helper()
	if got := n.phase(pod); got != want {
		n.t.Fatalf("%s is %v, want %v; calls %q", pod.Name, got, want, n.script.calls)
	}
}

func (n *node) expectCalls(want ...string) {
	n.t.Helper()
	n.script.mu.Lock()
	defer n.script.mu.Unlock()
	if !slices.Equal(n.script.calls, want) {
		n.t.Fatalf("calls\n%q, want\n%q", n.script.calls, want)
	}
}

// syncLoop does once what the sync loop does with pods that are due. The sources have the given pods.
func (n *node) syncLoop(pods ...*v1.Pod) {
	for _, uid := range n.queue.GetWork() {
		if i := slices.IndexFunc(pods, func(pod *v1.Pod) bool { return pod.UID == uid }); i >= 0 {
			n.send(kubetypes.SyncPodSync, pods[i])
			continue
		}
		n.Retry(uid)
	}
	synctest.Wait()
}

// scriptedSyncer is a Syncer whose operations succeed at once, unless a function is set. It records every call at its
// beginning.
type scriptedSyncer struct {
	t                *testing.T
	onSync           func(ctx context.Context, request podsync.SyncRequest) (podsync.SyncResult, error)
	onTerminate      func(ctx context.Context, request podsync.TerminateRequest) error
	onTerminateOther func(ctx context.Context, pod *kubecontainer.Pod) error
	onCleanUp        func(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus) error

	mu    sync.Mutex
	calls []string
	busy  map[types.UID]bool
}

func newScriptedSyncer(t *testing.T) *scriptedSyncer {
	return &scriptedSyncer{t: t, busy: map[types.UID]bool{}}
}

// begin records a call, and checks that calls for one pod do not overlap.
func (s *scriptedSyncer) begin(uid types.UID, format string, args ...any) func() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[uid] {
		s.t.Errorf("two operations at once for %s", uid)
	}
	s.busy[uid] = true
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy[uid] = false
	}
}

func (s *scriptedSyncer) Sync(ctx context.Context, request podsync.SyncRequest) (podsync.SyncResult, error) {
	defer s.begin(request.Pod.UID, "sync %s %v", request.Pod.Name, request.UpdateType)()
	if request.Status == nil {
		s.t.Error("sync without status")
	}
	if s.onSync != nil {
		return s.onSync(ctx, request)
	}
	return podsync.SyncResult{}, nil
}

func (s *scriptedSyncer) Terminate(ctx context.Context, request podsync.TerminateRequest) error {
	grace := "own"
	if request.GracePeriod != nil {
		grace = fmt.Sprint(*request.GracePeriod)
	}
	defer s.begin(request.Pod.UID, "terminate %s %s", request.Pod.Name, grace)()
	if request.Status == nil {
		s.t.Error("terminate without status")
	}
	if s.onTerminate != nil {
		return s.onTerminate(ctx, request)
	}
	return nil
}

func (s *scriptedSyncer) TerminateRuntimePod(ctx context.Context, pod *kubecontainer.Pod) error {
	defer s.begin(pod.ID, "terminate runtime pod %s", pod.Name)()
	if s.onTerminateOther != nil {
		return s.onTerminateOther(ctx, pod)
	}
	return nil
}

func (s *scriptedSyncer) CleanUp(ctx context.Context, pod *v1.Pod, status *kubecontainer.PodStatus) error {
	defer s.begin(pod.UID, "clean up %s", pod.Name)()
	if s.onCleanUp != nil {
		return s.onCleanUp(ctx, pod, status)
	}
	return nil
}

func (s *scriptedSyncer) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = nil
}

// eventLog is an event recorder.
type eventLog struct {
	mu     sync.Mutex
	events []string
}

func (l *eventLog) Eventf(_ runtime.Object, kind, reason, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, kind+" "+reason+" "+fmt.Sprintf(format, args...))
}

func (l *eventLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// newPod returns an ordinary pod with a grace period of 30 s.
func newPod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns", UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{TerminationGracePeriodSeconds: new(int64(30)), Containers: []v1.Container{{Name: "main"}}},
	}
}

// staticPod returns a static pod. Of pods with one name at most one may run.
func staticPod(name, uid string) *v1.Pod {
	pod := newPod(name)
	pod.UID = types.UID(uid)
	pod.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
	return pod
}

// deleted returns the pod after a delete at the API server with the given grace period in seconds.
func deleted(pod *v1.Pod, grace int64) *v1.Pod {
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = new(metav1.Now())
	pod.DeletionGracePeriodSeconds = &grace
	return pod
}

func completed(pod *v1.Pod) *v1.Pod {
	pod = pod.DeepCopy()
	pod.Status.Phase = v1.PodSucceeded
	return pod
}

// running returns a status with one running container.
func running(pod *v1.Pod) *kubecontainer.PodStatus {
	return &kubecontainer.PodStatus{ID: pod.UID,
		ContainerStatuses: []*kubecontainer.Status{{Name: "main", State: kubecontainer.ContainerStateRunning}}}
}

// untilCancelled is an operation that ends only with its context.
func untilCancelled(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}
