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

// listPeriod is how often the agent reads all manifests, as by default. Only then it notices that one is unreadable.
const listPeriod = 20 * time.Second

// graceSeconds is the grace period of all pods.
const graceSeconds = 30

// errRuntime is the error of calls to the runtime.
var errRuntime = errors.New("the runtime does not answer")

// world is everything that outlives the agent: running containers, manifests, and the pods of the API server.
type world struct {
	seed int64
	// dir has the agent's termination records.
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
	// healthy: all calls to the runtime succeed at once. slow: calls take 3 s. down: all calls fail. failing: some calls
	// fail.
	healthy, slow, down, failing bool
	// failures is how many of the next calls of a kind fail.
	failures map[string]int
	// hang is how long the next list takes, which fails then.
	hang time.Duration
	// pressure: only readmitted pods are admitted.
	pressure bool
	// goingDown: the shutdown of the machine is announced.
	goingDown bool
	// faults are the violations of invariants so far.
	faults []string
}

// life is a running pod.
type life struct {
	pod     *v1.Pod
	started time.Time
	// stopping is true from the request to stop the containers until they have stopped.
	stopping bool
}

// manifest is a file. The agent has its pod while the file is readable, and until the next list after that.
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

// draw returns a random number below n that depends on the seed, the kind, and the number of earlier draws of that
// kind. mu must be held.
func (w *world) draw(kind string, n int) int {
	w.drawn[kind]++
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", w.seed, kind, w.drawn[kind])
	return rand.New(rand.NewSource(int64(h.Sum64()))).Intn(n)
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

// staticPod returns the pod of a manifest; its UID depends on the content, as in stock.
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

// daemonPod returns a pod of a DaemonSet, which starts again after a cancelled shutdown.
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

// latency returns how long a call to the runtime takes, and its error.
func (w *world) latency(kind string) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.healthy:
		return 0, nil
	case kind == "list" && w.hang > 0:
		hang := w.hang
		w.hang = 0
		return hang, errRuntime
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

// call simulates a call to the runtime.
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

// stop stops the containers of a pod. It returns when they have stopped, or when ctx ends, which does not affect them.
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
		if !w.healthy {
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

// list returns the running pods.
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

// status returns the status of a pod in the runtime.
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

// reboot ends all containers.
func (w *world) reboot() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.running)
}

// manifests returns the pods of the readable files, ordered by name.
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

// apiPods returns copies of the pods of the API server.
func (w *world) apiPods() []*v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pods []*v1.Pod
	for _, uid := range slices.Sorted(maps.Keys(w.api)) {
		pods = append(pods, w.api[uid].DeepCopy())
	}
	return pods
}

// change calls do with mu held.
func (w *world) change(do func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	do()
}

// runningUIDs returns the UIDs of the running pods in ascending order.
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
