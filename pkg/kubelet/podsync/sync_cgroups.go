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

// ensureCgroup creates the pod's cgroup with its limits. If a pod runs although its cgroup does not exist (the agent
// was restarted with other cgroup settings, or the cgroup was removed), its containers run without limits: they are
// stopped, and started again inside the cgroup if their restart policy permits it.
type ensureCgroup struct {
	containers   ContainerManager
	lifecycle    Lifecycle
	kill         killer
	resizes      ResizeTracker
	events       events
	restartRules bool
}

func (ensureCgroup) Name() string { return "ensure cgroup" }

func (s ensureCgroup) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	if s.lifecycle.IsPodTerminationRequested(p.Pod.UID) {
		return nextStep, nil
	}
	cgroups := s.containers.NewPodContainerManager()
	if cgroups.Exists(p.Pod) {
		return nextStep, nil
	}
	killed, err := s.stopContainersOutside(ctx, p)
	if err != nil {
		return endPhase, err
	}
	if killed && s.neverRestarts(p.Pod) {
		return nextStep, nil
	}
	return nextStep, s.create(ctx, cgroups, p.Pod)
}

// stopContainersOutside stops the containers of a pod without a cgroup, and returns true if it did. If they cannot be
// stopped, the cgroup is created nevertheless, for new containers of the pod.
func (s ensureCgroup) stopContainersOutside(ctx context.Context, p *syncPass) (bool, error) {
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

// neverRestarts is true if none of the pod's containers is started again after it was stopped.
func (s ensureCgroup) neverRestarts(pod *v1.Pod) bool {
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
