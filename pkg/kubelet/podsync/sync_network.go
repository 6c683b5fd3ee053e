package podsync

import (
	"context"
	"errors"
	"fmt"

	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
)

// ErrNetworkNotReady is in the error of a Sync that had to wait for the node's network. The network is usually ready soon after
// the agent has started, so a worker tries again sooner than after other errors.
var ErrNetworkNotReady = errors.New("network is not ready")

// requireNetwork lets only pods in the host's network pass while there is no pod network.
type requireNetwork struct {
	errors func() error
	events events
}

func (requireNetwork) Name() string { return "require network" }

func (s requireNetwork) Run(ctx context.Context, p *syncPass) (verdict, error) {
	if kubecontainer.IsHostNetworkPod(p.Pod) {
		return proceed, nil
	}
	cause := s.errors()
	if cause == nil {
		return proceed, nil
	}
	err := fmt.Errorf("%w: %w", ErrNetworkNotReady, cause)
	s.events.warn(ctx, p.Pod, kubeevents.NetworkNotReady, "%v", err)
	return settled, err
}
