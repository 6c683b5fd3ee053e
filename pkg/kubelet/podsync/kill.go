package podsync

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeevents "k8s.io/kubernetes/pkg/kubelet/events"
)

// killer stops pods.
type killer struct {
	runtime PodKiller
	qos     QOSCgroups
}

func newKiller(c Config) killer { return killer{runtime: c.Runtime, qos: c.Containers} }

// pod stops the containers and sandboxes in running and returns when they have stopped. gracePeriod, in seconds,
// overrides that of the pod if it is not nil. After that the reservations of the QoS cgroups are updated; a failure is
// only logged, since they are updated periodically as well.
func (k killer) pod(ctx context.Context, pod *v1.Pod, running kubecontainer.Pod, gracePeriod *int64) error {
	if err := k.runtime.KillPod(ctx, pod, running, gracePeriod); err != nil {
		return err
	}
	logger := klog.FromContext(ctx)
	if err := k.qos.UpdateQOSCgroups(logger); err != nil {
		logger.V(2).Info("Failed to update QoS cgroups while killing pod", "err", err)
	}
	return nil
}

// orphanGraceSeconds is the grace period of containers of a pod without specification. It is not zero because not all
// runtimes kill at once if it is zero.
const orphanGraceSeconds = 1

// runtimePodKill stops pods that are known from the runtime only.
type runtimePodKill struct {
	kill      killer
	events    events
	escalator *escalator
}

func (o runtimePodKill) run(ctx context.Context, running *kubecontainer.Pod) error {
	pod := running.ToAPIPod()
	logger := klog.FromContext(ctx)
	logger.V(4).Info("Orphaned running pod terminating without grace period", "pod", klog.KObj(pod), "podUID", pod.UID)
	grace := int64(orphanGraceSeconds)
	t := target{pod: pod, status: statusOf(running), runtimeOnly: true, answered: true}
	err := o.escalator.kill(ctx, t, graceOf(pod, &grace), func(ctx context.Context) error {
		return o.kill.pod(ctx, pod, *running, &grace)
	})
	if err != nil {
		o.events.warn(ctx, pod, kubeevents.FailedToKillPod, "error killing pod: %v", err)
		utilruntime.HandleErrorWithContext(ctx, err, "Failed to kill orphaned pod", "pod", klog.KObj(pod), "podUID", pod.UID)
		return fmt.Errorf("killing orphaned pod %s: %w", pod.UID, err)
	}
	o.escalator.pods.remove(pod.UID)
	logger.V(4).Info("Pod termination stopped all running orphaned containers", "pod", klog.KObj(pod), "podUID", pod.UID)
	return nil
}

// statusOf converts an entry of the runtime's list of pods to a status.
func statusOf(running *kubecontainer.Pod) *kubecontainer.PodStatus {
	status := &kubecontainer.PodStatus{ID: running.ID, Name: running.Name, Namespace: running.Namespace}
	for _, c := range running.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses,
			&kubecontainer.Status{ID: c.ID, Name: c.Name, State: c.State})
	}
	return status
}
