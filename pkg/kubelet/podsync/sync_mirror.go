package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// reconcileMirror creates the mirror pod of a static pod. Failures are only logged, since a static pod does not need
// it.
type reconcileMirror struct{ mirrors mirrors }

func (reconcileMirror) Name() string { return "reconcile mirror pod" }

func (s reconcileMirror) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	s.mirrors.reconcile(ctx, p.Pod, p.MirrorPod)
	return nextStep, nil
}

// mirrors creates and deletes mirror pods.
type mirrors struct {
	client MirrorClient
	node   func(context.Context) (*v1.Node, error)
}

// reconcile deletes a mirror pod that is being deleted or belongs to another version of the static pod, and creates one
// if there is none.
func (m mirrors) reconcile(ctx context.Context, static, mirror *v1.Pod) {
	if !kubetypes.IsStaticPod(static) {
		return
	}
	if mirror != nil {
		if mirror.DeletionTimestamp == nil && kubepod.IsMirrorPodOf(mirror, static) {
			return
		}
		if !m.remove(ctx, static, mirror) {
			return
		}
	}
	m.create(ctx, static)
}

func (m mirrors) remove(ctx context.Context, static, mirror *v1.Pod) bool {
	logger := klog.FromContext(ctx)
	logger.Info("Trying to delete pod", "pod", klog.KObj(mirror), "podUID", mirror.UID)
	deleted, err := m.client.DeleteMirrorPod(ctx, kubecontainer.GetPodFullName(static), &mirror.UID)
	if err != nil {
		logger.Error(err, "Failed deleting mirror pod", "pod", klog.KObj(mirror))
		return false
	}
	if deleted {
		logger.Info("Deleted mirror pod as it didn't match the static Pod", "pod", klog.KObj(mirror))
	}
	return deleted
}

// create creates a mirror pod, unless the node is not registered: the garbage collector would delete the pod.
func (m mirrors) create(ctx context.Context, static *v1.Pod) {
	logger := klog.FromContext(ctx)
	node, err := m.node(ctx)
	if err != nil {
		logger.Error(err, "No need to create a mirror pod, since failed to get node info from the cluster",
			"pod", klog.KObj(static))
		return
	}
	if node.DeletionTimestamp != nil {
		logger.Info("No need to create a mirror pod, since node has been removed from the cluster",
			"node", klog.KObj(node))
		return
	}
	logger.Info("Creating a mirror pod for static pod", "pod", klog.KObj(static))
	if err := m.client.CreateMirrorPod(ctx, static); err != nil {
		logger.Error(err, "Failed creating a mirror pod", "pod", klog.KObj(static))
	}
}
