package kubelet

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// earlierStaticPods finds running static pods by the annotations of their sandboxes, which say where a pod came from.
type earlierStaticPods struct {
	sandboxes interface {
		ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	}
	pods interface {
		GetPod(ctx context.Context, uid types.UID) (*kubecontainer.Pod, error)
	}
}

// RunningStaticPods returns the static pods of that full name that run.
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
			return nil, fmt.Errorf("look at pod %s: %w", meta.GetUid(), err)
		}
		found = append(found, pod)
	}
	return found, nil
}

func fromFileOrURL(sandbox *runtimeapi.PodSandbox) bool {
	source := sandbox.GetAnnotations()[kubetypes.ConfigSourceAnnotationKey]
	return source == kubetypes.FileSource || source == kubetypes.HTTPSource
}
