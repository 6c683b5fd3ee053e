package podsync

import (
	"context"

	"k8s.io/klog/v2"
)

// releaseUserNamespace gives the pod's range of user IDs back.
type releaseUserNamespace struct{ namespaces UserNamespaces }

func (releaseUserNamespace) Name() string { return "release user namespace" }

func (s releaseUserNamespace) Run(ctx context.Context, p *cleanUpPass) (verdict, error) {
	s.namespaces.Release(klog.FromContext(ctx), p.pod.UID)
	return proceed, nil
}
