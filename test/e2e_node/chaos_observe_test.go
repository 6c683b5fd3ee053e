//go:build e2e

package e2enode

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubetypes "k8s.io/kubelet/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/e2e_node/chaos"
)

// What is counted of observations of the runtime.
const (
	observed   = "observations of the runtime"
	unobserved = "observations of the runtime that failed"
)

// observeInterval is the time between two observations of the runtime.
const observeInterval = 200 * time.Millisecond

// observe watches the API and the runtime until the context ends.
func (r *chaosRun) observe(ctx context.Context) *sync.WaitGroup {
	r.s.t.Helper()
	list, err := r.pods().List(ctx, metav1.ListOptions{})
	r.s.must(err)
	events, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return r.pods().Watch(ctx, options)
		},
	})
	r.s.must(err)
	runtime, err := node.Runtime(ctx)
	r.s.must(err)
	var all sync.WaitGroup
	all.Go(func() { r.watchAPI(ctx, events) })
	all.Go(func() { r.watchRuntime(ctx, runtime) })
	return &all
}

func (r *chaosRun) watchAPI(ctx context.Context, events watch.Interface) {
	for event := range events.ResultChan() {
		pod, ok := event.Object.(*v1.Pod)
		if !ok {
			r.problem("the watch of pods returned %v: %v", event.Type, event.Object)
			continue
		}
		r.phases.See(pod, time.Now())
		if event.Type == watch.Deleted {
			static := pod.Annotations[v1.MirrorPodAnnotationKey] != ""
			r.phases.Deleted(pod, static || r.ledger.IsForced(string(pod.UID)), time.Now())
		}
	}
	if ctx.Err() == nil {
		r.problem("the watch of pods ended")
	}
}

func (r *chaosRun) watchRuntime(ctx context.Context, runtime internalapi.RuntimeService) {
	// Without a log: the client logs each request that fails.
	ctx = klog.NewContext(ctx, klog.Logger{})
	ticker := time.NewTicker(observeInterval * cluster.TimeFactor())
	defer ticker.Stop()
	for ctx.Err() == nil {
		// A request fails while the runtime does not run. The next observation shows when containers ended meanwhile.
		if err := r.observeOnce(ctx, runtime); err == nil {
			r.count(observed)
		} else if ctx.Err() == nil {
			r.count(unobserved)
		}
		<-ticker.C
	}
}

// observeOnce lists all containers and sandboxes of the test.
func (r *chaosRun) observeOnce(ctx context.Context, runtime internalapi.RuntimeService) error {
	began := time.Now()
	containers, err := runtime.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	sandboxes, err := runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	for _, container := range containers {
		if container.Labels[kubetypes.KubernetesPodNamespaceLabel] == r.s.name {
			r.see(r.detail(ctx, runtime, container), began)
		}
	}
	for _, sandbox := range sandboxes {
		if sandbox.Labels[kubetypes.KubernetesPodNamespaceLabel] == r.s.name {
			run := runOf(sandbox.Id, sandbox.Labels)
			run.Container, run.Started = chaos.Sandbox, time.Unix(0, sandbox.CreatedAt)
			run.Running = sandbox.State == runtimeapi.PodSandboxState_SANDBOX_READY
			r.see(run, began)
		}
	}
	return nil
}

func (r *chaosRun) see(run chaos.Run, began time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs.See(run, began, r.phases.Ended)
}

func runOf(id string, labels map[string]string) chaos.Run {
	pod := labels[kubetypes.KubernetesPodNameLabel]
	return chaos.Run{
		ID:        id,
		UID:       labels[kubetypes.KubernetesPodUIDLabel],
		Pod:       pod,
		Container: labels[kubetypes.KubernetesContainerNameLabel],
		Static:    strings.HasPrefix(pod, "static-"),
	}
}

// detail adds when a container started and ended, as long as that can change.
func (r *chaosRun) detail(
	ctx context.Context, runtime internalapi.RuntimeService, container *runtimeapi.Container,
) chaos.Run {
	run := runOf(container.Id, container.Labels)
	run.Running = container.State == runtimeapi.ContainerState_CONTAINER_RUNNING
	run.Started = time.Unix(0, container.CreatedAt)
	r.mu.Lock()
	before, known := r.runs.Get(container.Id)
	r.mu.Unlock()
	if known {
		run.Started = before.Started
	}
	if known && (run.Running && before.Running || !before.Finished.IsZero()) {
		return run
	}
	// The details of one that was removed meanwhile stay as they are.
	if status, err := runtime.ContainerStatus(ctx, container.Id, false); err == nil {
		if at := status.Status.StartedAt; at > 0 {
			run.Started = time.Unix(0, at)
		}
		if at := status.Status.FinishedAt; at > 0 {
			run.Finished = time.Unix(0, at)
		}
	}
	return run
}

// instances reads what the containers and hooks wrote.
func (r *chaosRun) instances() ([]chaos.Instance, error) {
	files, err := filepath.Glob(filepath.Join(r.notes, chaos.NotesFile("*")))
	if err != nil {
		return nil, err
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		all.Write(data)
	}
	return chaos.Instances(all.String())
}

// neverRestarted returns a function that is true for pods with restart policy Never.
func (r *chaosRun) neverRestarted() func(uid string) bool {
	never := map[string]bool{}
	for _, asked := range r.ledger.Expected() {
		never[asked.UID] = asked.Shape.Restart == v1.RestartPolicyNever
	}
	return func(uid string) bool { return never[uid] }
}
