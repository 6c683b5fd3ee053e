package podworkers

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// EarlierStaticPods finds static pods of earlier runs of the agent in the runtime.
type EarlierStaticPods interface {
	// RunningStaticPods returns the running static pods of a full name. It lists them in the runtime, not in a cache.
	RunningStaticPods(ctx context.Context, fullName string) ([]*kubecontainer.Pod, error)
}

// Sandboxes lists the sandboxes of the container runtime.
type Sandboxes interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
}

// RuntimePods reads one pod from the container runtime. The error is kubecontainer.ErrPodNotFound if there is no such
// pod.
type RuntimePods interface {
	GetPod(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error)
}

// NewEarlierStaticPods finds static pods by the annotations of their sandboxes, which name the source of a pod.
func NewEarlierStaticPods(sandboxes Sandboxes, pods RuntimePods) EarlierStaticPods {
	return earlierStaticPods{sandboxes: sandboxes, pods: pods}
}

type earlierStaticPods struct {
	sandboxes Sandboxes
	pods      RuntimePods
}

func (e earlierStaticPods) RunningStaticPods(ctx context.Context, fullName string) ([]*kubecontainer.Pod, error) {
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	list, err := e.sandboxes.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{State: ready})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes: %w", err)
	}
	var found []*kubecontainer.Pod
	for _, sandbox := range list {
		meta := sandbox.GetMetadata()
		if kubecontainer.BuildPodFullName(meta.GetName(), meta.GetNamespace()) != fullName || !fromFileOrURL(sandbox) {
			continue
		}
		pod, err := e.pods.GetPod(ctx, types.UID(meta.GetUid()))
		if errors.Is(err, kubecontainer.ErrPodNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read pod %s from the runtime: %w", meta.GetUid(), err)
		}
		found = append(found, pod)
	}
	return found, nil
}

func fromFileOrURL(sandbox *runtimeapi.PodSandbox) bool {
	source := sandbox.GetAnnotations()[kubetypes.ConfigSourceAnnotationKey]
	return source == kubetypes.FileSource || source == kubetypes.HTTPSource
}

// fullNameInUse is true when the runtime runs another static pod of the same full name, which was replaced while the
// agent was not running. It has that pod stopped, without waiting for other sources: of static pods with one full name
// at most one may run, and the source now has p. It is true also when the runtime cannot list its pods; the pod could
// not be started then.
func (w *Workers) fullNameInUse(p *worker) bool {
	state, known := w.cfg.Store.State(p.uid)
	if !known || !state.Static || state.Phase != podlifecycle.Known {
		return false
	}
	logger := klog.FromContext(p.ctx)
	pods, err := w.cfg.EarlierStaticPods.RunningStaticPods(p.ctx, state.FullName)
	if err != nil {
		logger.Error(err, "Failed to list running static pods of the same name, the pod waits", "pod", p.name, "podUID",
			p.uid)
		return true
	}
	used := false
	for _, pod := range pods {
		if pod.ID == p.uid {
			continue
		}
		used = true
		if w.stopEarlierPod(p, pod) {
			logger.Info("Stopping an earlier static pod of the same name", "pod", p.name, "podUID", p.uid, "earlierUID", pod.ID)
		}
	}
	return used
}

// stopEarlierPod requests the termination of a running pod before p starts. It returns false if that pod is being
// stopped, or has a specification: its source may have named it again since it was listed, and then it must not be
// stopped as a runtime pod. Check and request are one step under the lock. The request is repeated after a failure,
// because Retry would repeat the termination with the containers of the first request.
func (w *Workers) stopEarlierPod(p *worker, pod *kubecontainer.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	other, known := w.cfg.Store.State(pod.ID)
	if known && (!other.Marks.RuntimeOnly || other.Operation != podlifecycle.OpNone) {
		return false
	}
	w.update(p.ctx, Update{UpdateType: kubetypes.SyncPodKill, RunningPod: pod})
	return true
}
