package podsync

import (
	"context"

	"k8s.io/klog/v2"
)

// unprepareResources releases the devices of the pod's resource claims.
type unprepareResources struct{ containers ContainerManager }

func (unprepareResources) Name() string { return StepUnprepareResources }

func (s unprepareResources) Run(ctx context.Context, p *terminatePass) (stepResult, error) {
	return nextStep, s.containers.UnprepareDynamicResources(ctx, p.Pod)
}

// releaseUserNamespace releases the pod's range of user IDs.
type releaseUserNamespace struct{ namespaces UserNamespaces }

func (releaseUserNamespace) Name() string { return "release user namespace" }

func (s releaseUserNamespace) Run(ctx context.Context, p *cleanUpPass) (stepResult, error) {
	s.namespaces.Release(klog.FromContext(ctx), p.pod.UID)
	return nextStep, nil
}
