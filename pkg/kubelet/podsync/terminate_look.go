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

// lookAgain asks the runtime what of the pod is there now. Kills do not wait for the PLEG, so the status given may not know a
// container that was started last; it would be left running. When the runtime does not answer soon, the status given has to do: the
// grace period, and what is done when it is over, begin with the kill.
type lookAgain struct {
	observer PodObserver
	timeout  time.Duration
}

func (lookAgain) Name() string { return "look again" }

func (s lookAgain) Run(ctx context.Context, p *terminatePass) (verdict, error) {
	asking, done := context.WithTimeout(ctx, s.timeout)
	defer done()
	status, err := observe(asking, s.observer, p.Pod)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Pod cannot be read before it is killed, using what is known", "pod", klog.KObj(p.Pod), "podUID", p.Pod.UID, "err", err)
		return proceed, nil
	}
	p.current, p.reached = status, true
	return proceed, nil
}

// observe reads a pod's status from the runtime, see read. It returns when ctx ends, also when the observer does not: the
// runtime manager fills a status up with resources from a checkpoint, and waits for the disk while that is written.
func observe(ctx context.Context, observer PodObserver, pod *v1.Pod) (*kubecontainer.PodStatus, error) {
	type answer struct {
		status *kubecontainer.PodStatus
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		status, err := read(ctx, observer, pod)
		answered <- answer{status, err}
	}()
	select {
	case a := <-answered:
		return a.status, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("reading the pod's status: %w", ctx.Err())
	}
}

// read reads a pod's status from the runtime. Of a pod that the runtime does not know it returns one with nothing in it.
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
