package podsync

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

// requeueRestarted synchronizes the pod again at once after all of its containers were removed in order to be restarted
// (KEP-5532): this pass has only removed them. It does not go round in circles, since without containers the condition that asks
// for the restart goes away in the next pass.
type requeueRestarted struct {
	requeue func(ctx context.Context, pod, mirrorPod *v1.Pod)
}

func (requeueRestarted) Name() string { return "requeue after restart of all containers" }

func (s requeueRestarted) Run(ctx context.Context, p *syncPass) (verdict, error) {
	if !p.restartAll || p.runtime.Error() != nil {
		return proceed, nil
	}
	removed := slices.ContainsFunc(p.runtime.SyncResults, func(r *kubecontainer.SyncResult) bool {
		return r.Action == kubecontainer.RemoveContainer && r.Error == nil
	})
	if removed {
		pod, mirror := p.Pod, p.MirrorPod
		p.afterSync(func() { s.requeue(context.WithoutCancel(ctx), pod, mirror) })
	}
	return proceed, nil
}
