package agentlife

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// listPeriod is how often the agent reads all manifests, as by default. Only then it sees that one is unreadable.
const listPeriod = 20 * time.Second

// graceSeconds is the grace period of all pods.
const graceSeconds = 30

// errRuntime is how calls to the runtime fail.
var errRuntime = errors.New("the runtime does not answer")

// world outlives the agent: what runs, the manifests, and the pods of the API server.
type world struct {
	seed int64
	// dir is where the agent keeps its terminations.
	dir string

	mu sync.Mutex
	// drawn counts the random draws of a kind, so that a draw does not depend on the order of goroutines.
	drawn   map[string]int
	running map[types.UID]*life
	files   map[string]manifest
	// api are the pods that the API server has.
	api map[types.UID]*v1.Pod
	// reachable: the API server can be reached if it runs. selfHosted: it runs only while a static pod of that name does.
	reachable  bool
	selfHosted string
	// calm ends everything that goes wrong. slow: the runtime takes its time. down: it does not answer. failing: some
	// calls fail.
	calm, slow, down, failing bool
	// failures is how often calls of a kind fail from now on.
	failures map[string]int
	// pressure: only pods that were here before are admitted.
	pressure bool
	// goingDown: the shutdown of the machine is announced.
	goingDown bool
	// wrong is what must never be.
	wrong []string
}

// life is the life of a pod's containers.
type life struct {
	pod     *v1.Pod
	started time.Time
	// stopping is true from when the containers are told to stop, though they may take their time.
	stopping bool
}

// manifest is a file. It counts while it is readable, or until the next list after it has become unreadable.
type manifest struct {
	revision   int
	unreadable bool
}

func newWorld(seed int64, dir string) *world {
	return &world{
		seed: seed, dir: dir, drawn: map[string]int{}, running: map[types.UID]*life{}, files: map[string]manifest{},
		api: map[types.UID]*v1.Pod{}, failures: map[string]int{}, reachable: true,
	}
}

// draw returns a random number below n that depends on the seed and on how many of that kind were drawn. The caller
// holds mu.
func (w *world) draw(kind string, n int) int {
	w.drawn[kind]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", w.seed, kind, w.drawn[kind])
	return rand.New(rand.NewSource(int64(h.Sum64()))).Intn(n)
}

func (w *world) fault(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// staticPod is the pod of a manifest; its UID is of the content, as by default.
func staticPod(name string, revision int) *v1.Pod {
	pod := newPod(types.UID(fmt.Sprintf("%s-%d", name, revision)), kubetypes.FileSource)
	pod.Name = name
	return pod
}

func newPod(uid types.UID, source string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID: uid, Name: string(uid), Namespace: "ns",
			Annotations: map[string]string{kubetypes.ConfigSourceAnnotationKey: source},
		},
		Spec: v1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(graceSeconds)), Containers: []v1.Container{{Name: "main"}},
		},
	}
}

// daemonPod is a pod of a DaemonSet, which starts again after a cancelled shutdown.
func daemonPod(uid types.UID) *v1.Pod {
	pod := newPod(uid, kubetypes.ApiserverSource)
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "d", Controller: new(true)}
	pod.OwnerReferences = []metav1.OwnerReference{owner}
	return pod
}

// apiAnswers is true while the API server can be reached.
func (w *world) apiAnswers() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.reachable || w.selfHosted == "" {
		return w.reachable
	}
	for _, l := range w.running {
		if l.pod.Name == w.selfHosted {
			return true
		}
	}
	return false
}

// latency is how long a call to the runtime takes, and how it fails.
func (w *world) latency(kind string) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.calm:
		return 0, nil
	case w.failures[kind] > 0:
		w.failures[kind]--
		return time.Second, errRuntime
	case w.down:
		return time.Second, errRuntime
	case w.failing && w.draw(kind, 3) == 0:
		return time.Second, errRuntime
	case w.slow:
		return 3 * time.Second, nil
	}
	return 0, nil
}

// call is a call to the runtime.
func (w *world) call(ctx context.Context, kind string) error {
	takes, err := w.latency(kind)
	if takes > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(takes):
		}
	}
	return err
}

// start starts the containers of a pod, if they do not run.
func (w *world) start(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, runs := w.running[pod.UID]; runs {
		return
	}
	for uid, other := range w.running {
		if kubetypes.IsStaticPod(pod) && kubetypes.IsStaticPod(other.pod) && other.pod.Name == pod.Name {
			w.fault("static pod %s starts while %s runs", pod.UID, uid)
		}
	}
	w.running[pod.UID] = &life{pod: pod, started: time.Now()}
}

// stop stops the containers of a pod and returns when they have ended, or when ctx ends. They end in any case.
func (w *world) stop(ctx context.Context, uid types.UID, grace time.Duration) error {
	w.mu.Lock()
	l, runs := w.running[uid]
	if !runs {
		w.mu.Unlock()
		return nil
	}
	if !l.stopping {
		l.stopping = true
		takes := time.Duration(0)
		if !w.calm {
			takes = min(time.Duration(w.draw("stop "+string(uid), 20_000))*time.Millisecond, grace)
		}
		time.AfterFunc(takes, func() { w.ended(uid, l) })
	}
	w.mu.Unlock()
	for w.runs(uid, l) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

func (w *world) runs(uid types.UID, l *life) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.running[uid] == l
}

func (w *world) ended(uid types.UID, l *life) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running[uid] == l {
		delete(w.running, uid)
	}
}

// list is what the runtime runs.
func (w *world) list() []*kubecontainer.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods := make([]*kubecontainer.Pod, 0, len(w.running))
	for _, uid := range slices.Sorted(maps.Keys(w.running)) {
		l := w.running[uid]
		main := &kubecontainer.Container{
			Name: "main", State: kubecontainer.ContainerStateRunning, CreatedAt: l.started.UnixNano(),
		}
		pods = append(pods, &kubecontainer.Pod{
			ID: uid, Name: l.pod.Name, Namespace: l.pod.Namespace, Containers: []*kubecontainer.Container{main},
		})
	}
	return pods
}

// status is what the runtime says of one pod.
func (w *world) status(uid types.UID) *kubecontainer.PodStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	status := &kubecontainer.PodStatus{ID: uid}
	if l, runs := w.running[uid]; runs {
		main := &kubecontainer.Status{
			Name: "main", State: kubecontainer.ContainerStateRunning, StartedAt: l.started, CreatedAt: l.started,
		}
		status.ContainerStatuses = []*kubecontainer.Status{main}
		status.SandboxStatuses = []*runtimeapi.PodSandboxStatus{{State: runtimeapi.PodSandboxState_SANDBOX_READY}}
	}
	return status
}

// reboot ends everything that runs.
func (w *world) reboot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.running)
}

// manifests are the pods of the readable files, in order of their names.
func (w *world) manifests() []*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pods []*v1.Pod
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		if f := w.files[name]; !f.unreadable {
			pods = append(pods, staticPod(name, f.revision))
		}
	}
	return pods
}

// apiPods are the pods that the API server shows, as copies.
func (w *world) apiPods() []*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pods []*v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(w.api)) {
		pods = append(pods, w.api[uid].DeepCopy())
	}
	return pods
}

// change changes the world under its lock.
func (w *world) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// runningUIDs are the pods that run, in order.
func (w *world) runningUIDs() []types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.running))
}

func join(uids []types.UID) string {
	var words []string
	for _, uid := range uids {
		words = append(words, string(uid))
	}
	return "[" + strings.Join(words, " ") + "]"
}
