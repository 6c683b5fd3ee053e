package podsync

import (
	"context"

	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
)

// makeDataDirs creates the pod's directories.
type makeDataDirs struct {
	dirs   DataDirs
	events events
}

func (makeDataDirs) Name() string { return "make data directories" }

func (s makeDataDirs) Run(ctx context.Context, p *syncPass) (verdict, error) {
	err := s.dirs.MakePodDataDirs(p.Pod)
	if err != nil {
		s.events.warn(ctx, p.Pod, kubeevents.FailedToMakePodDataDirectories, "error making pod data directories: %v", err)
	}
	return proceed, err
}
