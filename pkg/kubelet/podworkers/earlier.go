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

// EarlierStaticPods looks into the runtime for static pods.
type EarlierStaticPods interface {
	// RunningStaticPods returns the static pods of that full name that run. It asks the runtime itself.
	RunningStaticPods(ctx context.Context, fullName string) ([]*kubecontainer.Pod, error)
}

// Sandboxes are those of the container runtime.
type Sandboxes interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
}

// RuntimePods reads one pod from the container runtime. The error is kubecontainer.ErrPodNotFound if it has none.
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

// fullNameInUse is true when the runtime runs an earlier static pod of the same full name, which was replaced while no
// agent was there to see it. A full name is that of one static pod on a node, and the source of this one has given it
// away: the earlier one is stopped at once, without waiting for the other sources. It is true also when the runtime
// does not tell; nothing could be started then.
func (w *Workers) fullNameInUse(p *worker) bool {
	state, known := w.cfg.Store.State(p.uid)
	if !known || !state.Static || state.Phase != podlifecycle.Known {
		return false
	}
	logger := klog.FromContext(p.ctx)
	pods, err := w.cfg.EarlierStaticPods.RunningStaticPods(p.ctx, state.FullName)
	if err != nil {
		logger.Error(err, "Static pod waits, the runtime does not tell whether an earlier one of its name runs", "pod",
			p.name, "podUID", p.uid)
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

// stopEarlierPod has a running pod stopped before p starts. False if that pod has a specification, or is being stopped:
// its source may have named it again since it was listed, and then it must not be stopped as one that no source has. So
// nothing comes between the look and the request. One that did not stop is told again, with what runs of it now: Retry
// repeats the termination of what ran at first.
func (w *Workers) stopEarlierPod(p *worker, pod *kubecontainer.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	other, known := w.cfg.Store.State(pod.ID)
	if known && (!other.Marks.RuntimeOnly || other.Doing != podlifecycle.OpNone) {
		return false
	}
	w.update(p.ctx, Update{UpdateType: kubetypes.SyncPodKill, RunningPod: pod})
	return true
}
