package podsync

import (
	"context"
	"errors"
	"fmt"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
)

// ErrNetworkNotReady is in the error of a Sync that failed because the node's network is not ready. The network is
// usually ready soon after the agent has started, so the worker retries sooner than after other errors.
var ErrNetworkNotReady = errors.New("network is not ready")

// requireNetwork fails for pods outside of the host's network while the pod network is not ready.
type requireNetwork struct {
	errors func() error
	events events
}

func (requireNetwork) Name() string { return "require network" }

func (s requireNetwork) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	if kubecontainer.IsHostNetworkPod(p.Pod) {
		return nextStep, nil
	}
	cause := s.errors()
	if cause == nil {
		return nextStep, nil
	}
	err := fmt.Errorf("%w: %w", ErrNetworkNotReady, cause)
	s.events.warn(ctx, p.Pod, kubeevents.NetworkNotReady, "%v", err)
	return endPhase, err
}
