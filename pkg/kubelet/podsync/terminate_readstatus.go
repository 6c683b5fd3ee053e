package podsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// readStatus reads the status of the pod from the runtime. Kills do not wait for the PLEG, so the given status may lack
// a container that was started last, which would be left running. If the runtime does not answer in time, the given
// status is used, because the grace period and the escalation begin only with the kill.
type readStatus struct {
	observer PodObserver
	timeout  time.Duration
}

func (readStatus) Name() string { return "read status from the runtime" }

func (s readStatus) Run(ctx context.Context, p *terminatePass) (stepResult, error) {
	queryCtx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	status, err := observe(queryCtx, s.observer, p.Pod)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Failed to read pod before it is killed, using the last known status",
			"pod", klog.KObj(p.Pod), "podUID", p.Pod.UID, "err", err)
		return nextStep, nil
	}
	p.current, p.answered = status, true
	return nextStep, nil
}

// observe reads a pod's status from the runtime, see read. It returns when ctx ends, even if the observer does not: the
// runtime manager adds resources from a checkpoint to the status, and waits for the disk while the checkpoint is
// written.
func observe(ctx context.Context, observer PodObserver, pod *v1.Pod) (*kubecontainer.PodStatus, error) {
	type result struct {
		status *kubecontainer.PodStatus
		err    error
	}
	results := make(chan result, 1)
	go func() {
		status, err := read(ctx, observer, pod)
		results <- result{status, err}
	}()
	select {
	case r := <-results:
		return r.status, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("reading the pod's status: %w", ctx.Err())
	}
}

// read reads a pod's status from the runtime. If the runtime has nothing of the pod, the status has no containers.
func read(ctx context.Context, observer PodObserver, pod *v1.Pod) (*kubecontainer.PodStatus, error) {
	found, err := observer.GetPod(ctx, pod.UID)
	if errors.Is(err, kubecontainer.ErrPodNotFound) {
		found, err = &kubecontainer.Pod{ID: pod.UID, Name: pod.Name, Namespace: pod.Namespace, Timestamp: time.Now()}, nil
	}
	if err != nil {
		return nil, err
	}
	return observer.GetPodStatus(ctx, found)
}
