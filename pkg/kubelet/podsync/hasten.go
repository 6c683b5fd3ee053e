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

// hasten stops containers during a termination in progress, within a shorter grace period.
type hasten struct {
	observer PodObserver
	stopper  ContainerStopper
	// timeout limits the wait for the status of the pod.
	timeout time.Duration
}

func (h hasten) run(ctx context.Context, req TerminateRequest) error {
	begin := time.Now()
	status, err := h.status(ctx, req)
	if err != nil {
		return fmt.Errorf("hastening the termination: %w", err)
	}
	klog.FromContext(ctx).V(2).Info("Shortening pod termination",
		"pod", klog.KObj(req.Pod), "podUID", req.Pod.UID, "gracePeriodSeconds", *req.GracePeriod)
	containers, sidecars := runningContainers(req.Pod, status)
	if err := h.stop(ctx, containers, *req.GracePeriod); err != nil {
		return err
	}
	// Sidecars run until the other containers have terminated (KEP-753); they get the remaining time.
	elapsed := int64(time.Since(begin) / time.Second)
	return h.stop(ctx, sidecars, max(*req.GracePeriod-elapsed, 0))
}

// status returns the status of the pod in the runtime, or the given one if the runtime does not answer in time: no
// container is started any more, and the escalation kills containers that the given status does not list.
func (h hasten) status(ctx context.Context, req TerminateRequest) (*kubecontainer.PodStatus, error) {
	queryCtx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	status, err := observe(queryCtx, h.observer, req.Pod)
	if err != nil && queryCtx.Err() != nil && ctx.Err() == nil && req.Status != nil {
		return req.Status, nil
	}
	return status, err
}

// runningContainers returns the IDs of the running containers, those of sidecars separately.
func runningContainers(pod *v1.Pod, status *kubecontainer.PodStatus) (containers, sidecars []string) {
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

// stop stops containers concurrently.
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
