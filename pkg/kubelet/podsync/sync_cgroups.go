package podsync

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
)

// ensureCgroup creates the pod's cgroup with its limits. A pod that runs although its cgroup does not exist (the agent was started
// anew with other cgroup settings, or somebody removed it) runs outside of every limit: it is stopped, and its containers come
// back inside the cgroup if they may be restarted.
type ensureCgroup struct {
	containers   ContainerManager
	lifecycle    Lifecycle
	kill         killer
	resizes      ResizeTracker
	events       events
	restartRules bool
}

func (ensureCgroup) Name() string { return "ensure cgroup" }

func (s ensureCgroup) Run(ctx context.Context, p *syncPass) (verdict, error) {
	if s.lifecycle.IsPodTerminationRequested(p.Pod.UID) {
		return proceed, nil
	}
	cgroups := s.containers.NewPodContainerManager()
	if cgroups.Exists(p.Pod) {
		return proceed, nil
	}
	killed, err := s.stopStrays(ctx, p)
	if err != nil {
		return settled, err
	}
	if killed && s.runsOnce(p.Pod) {
		return proceed, nil
	}
	return proceed, s.create(ctx, cgroups, p.Pod)
}

// stopStrays stops the containers of a pod without a cgroup and says whether it did. That they could not be stopped does not keep
// the cgroup from being made: new containers of the pod at least belong in it.
func (s ensureCgroup) stopStrays(ctx context.Context, p *syncPass) (bool, error) {
	if !slices.ContainsFunc(p.api.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.State.Running != nil }) {
		return false, nil
	}
	err := s.kill.pod(ctx, p.Pod, kubecontainer.ConvertPodStatusToRunningPod(s.kill.runtime.Type(), p.Status), nil)
	switch {
	case err == nil:
		return true, nil
	case wait.Interrupted(err):
		return false, fmt.Errorf("stopping containers that run without the pod's cgroup: %w", err)
	}
	klog.FromContext(ctx).Error(err, "KillPod failed", "pod", klog.KObj(p.Pod), "podUID", p.Pod.UID)
	return false, nil
}

// runsOnce is true when none of the pod's containers comes back after it was stopped.
func (s ensureCgroup) runsOnce(pod *v1.Pod) bool {
	if pod.Spec.RestartPolicy != v1.RestartPolicyNever {
		return false
	}
	return !s.restartRules || !slices.ContainsFunc(pod.Spec.Containers, func(c v1.Container) bool {
		return podutil.IsContainerRestartable(pod.Spec, c)
	})
}

func (s ensureCgroup) create(ctx context.Context, cgroups cm.PodContainerManager, pod *v1.Pod) error {
	logger := klog.FromContext(ctx)
	if err := s.containers.UpdateQOSCgroups(logger); err != nil {
		logger.V(2).Info("Failed to update QoS cgroups while syncing pod", "pod", klog.KObj(pod), "err", err)
	}
	if err := cgroups.EnsureExists(logger, pod); err != nil {
		s.events.warn(ctx, pod, kubeevents.FailedToCreatePodContainer, "unable to ensure pod container exists: %v", err)
		return fmt.Errorf("failed to ensure that the pod: %v cgroups exist and are correctly applied: %w", pod.UID, err)
	}
	if err := s.resizes.UpdateActuatedPodLevelResources(pod); err != nil {
		return fmt.Errorf("recording the pod-level resources of %v as applied: %w", pod.UID, err)
	}
	return nil
}
