package housekeeping

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// mirrorTimeout is how long one round may delete mirror pods. Then a later round goes on, with the mirror pods of its
// time.
const mirrorTimeout = 10 * time.Second

// mirrorPods deletes mirror pods without a static pod, unless the static pod is terminating. The API server may take
// long, so at most one goroutine does it; while it runs, other rounds delete none. A static pod may come back
// meanwhile, so this is checked again before each deletion. Only the mirror pod that was found is deleted, not a later
// one of the same name.
type mirrorPods struct {
	client    MirrorDeleter
	pods      Pods
	lifecycle StaticPodLifecycle

	deleting atomic.Bool
	done     sync.WaitGroup
}

func (*mirrorPods) Name() string { return "orphaned mirror pods" }

func (t *mirrorPods) Run(ctx context.Context, r *round) error {
	orphans := slices.DeleteFunc(slices.Clone(r.orphanedMirrors), t.lifecycle.IsPodForMirrorPodTerminatingByFullName)
	if len(orphans) == 0 || !t.deleting.CompareAndSwap(false, true) {
		return nil
	}
	slices.Sort(orphans)
	uids := map[string]*types.UID{}
	for _, pod := range r.mirrorPods {
		uids[kubecontainer.GetPodFullName(pod)] = &pod.UID
	}
	t.done.Go(func() {
		defer t.deleting.Store(false)
		ctx, cancel := context.WithTimeout(ctx, mirrorTimeout)
		defer cancel()
		for _, fullName := range orphans {
			if ctx.Err() == nil {
				t.remove(ctx, fullName, uids[fullName])
			}
		}
	})
	return nil
}

// remove deletes a mirror pod. A failure is only logged, since the next round retries.
func (t *mirrorPods) remove(ctx context.Context, fullName string, uid *types.UID) {
	if _, back := t.pods.GetPodByFullName(fullName); back || t.lifecycle.IsPodForMirrorPodTerminatingByFullName(fullName) {
		return
	}
	if _, err := t.client.DeleteMirrorPod(ctx, fullName, uid); err != nil {
		klog.FromContext(ctx).Error(err, "Failed deleting a mirror pod", "podName", fullName)
		return
	}
	klog.FromContext(ctx).V(3).Info("Deleted mirror pod", "podName", fullName)
}

func (t *mirrorPods) wait() { t.done.Wait() }

// nodePollPeriod is the interval at which RegisterStaticPods checks whether the node is registered.
const nodePollPeriod = 100 * time.Millisecond

// StaticPods is the input of RegisterStaticPods.
type StaticPods struct {
	// Node returns an error until the node is registered.
	Node func(context.Context) (*v1.Node, error)
	// Pods returns the static pods, each with its mirror pod or nil.
	Pods func() map[*v1.Pod]*v1.Pod
	// Reconcile creates or replaces the mirror pod.
	Reconcile func(ctx context.Context, pod, mirrorPod *v1.Pod)
}

// RegisterStaticPods waits until the node is registered, and then creates the mirror pods without waiting for the next
// synchronization of the pods: the scheduler needs their requests before it binds pods to this node. It returns when
// the mirror pods are created or ctx ends.
func RegisterStaticPods(ctx context.Context, s StaticPods) {
	logger := klog.FromContext(ctx)
	err := wait.PollUntilContextCancel(ctx, nodePollPeriod, true, func(ctx context.Context) (bool, error) {
		if _, err := s.Node(ctx); err != nil {
			logger.V(4).Info("Unable to register mirror pod because node is not registered yet", "err", err)
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		logger.Error(err, "Failed to wait until node is registered")
		return
	}
	mirrorOf := s.Pods()
	for _, pod := range slices.SortedFunc(maps.Keys(mirrorOf), comparePods) {
		s.Reconcile(ctx, pod, mirrorOf[pod])
	}
}

func comparePods(a, b *v1.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), compareUIDs(a.UID, b.UID))
}
