package podsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	crierror "k8s.io/cri-api/pkg/errors"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// errCannotHasten is why a termination in flight keeps its grace period.
var errCannotHasten = errors.New("a termination in flight cannot be hastened")

// hasten stops containers beside a termination that is in flight.
type hasten struct {
	observer PodObserver
	stopper  ContainerStopper
	// timeout bounds how long the runtime is asked what runs.
	timeout time.Duration
}

func (h hasten) run(ctx context.Context, req TerminateRequest) error {
	if h.stopper == nil || req.GracePeriod == nil {
		return errCannotHasten
	}
	begin := time.Now()
	status, err := h.status(ctx, req)
	if err != nil {
		return fmt.Errorf("hastening the termination: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Pod termination is hastened", "pod", klog.KObj(req.Pod), "podUID", req.Pod.UID, "gracePeriod", *req.GracePeriod)
	containers, sidecars := runningByTurn(req.Pod, status)
	if err := h.stop(ctx, containers, *req.GracePeriod); err != nil {
		return err
	}
	// Sidecars serve the others to their end (KEP-753); they get what is left.
	elapsed := int64(time.Since(begin) / time.Second)
	return h.stop(ctx, sidecars, max(*req.GracePeriod-elapsed, 0))
}

// status returns what the runtime says of the pod. When it does not answer soon, the status given has to do: no container
// is started any more, and the escalation kills in time what that status does not show.
func (h hasten) status(ctx context.Context, req TerminateRequest) (*kubecontainer.PodStatus, error) {
	asking, done := context.WithTimeout(ctx, h.timeout)
	defer done()
	status, err := observe(asking, h.observer, req.Pod)
	if err != nil && asking.Err() != nil && ctx.Err() == nil && req.Status != nil {
		return req.Status, nil
	}
	return status, err
}

// runningByTurn returns the IDs of the containers that run, those of sidecars apart.
func runningByTurn(pod *v1.Pod, status *kubecontainer.PodStatus) (containers, sidecars []string) {
	isSidecar := make(map[string]bool)
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		isSidecar[c.Name] = podutil.IsRestartableInitContainer(c)
	}
	for _, c := range status.ContainerStatuses {
		switch {
		case c.State != kubecontainer.ContainerStateRunning:
		case isSidecar[c.Name]:
			sidecars = append(sidecars, c.ID.ID)
		default:
			containers = append(containers, c.ID.ID)
		}
	}
	return containers, sidecars
}

// stop stops containers side by side.
func (h hasten) stop(ctx context.Context, ids []string, graceSeconds int64) error {
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() {
			if err := h.stopper.StopContainer(ctx, id, graceSeconds); err != nil && !crierror.IsNotFound(err) {
				errs[i] = fmt.Errorf("stopping container %s within %d s: %w", id, graceSeconds, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}
