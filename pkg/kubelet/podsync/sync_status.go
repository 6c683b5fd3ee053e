package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// publishStatus computes the pod's status from its state in the runtime, and publishes it. If the phase is terminal, it
// ends the synchronization with a terminal result.
type publishStatus struct {
	generator StatusGenerator
	statuses  StatusStore
}

func (publishStatus) Name() string { return "publish status" }

func (s publishStatus) Run(ctx context.Context, p *syncPass) (stepResult, error) {
	p.api = s.generator.Generate(ctx, p.Pod, p.Status, false)
	p.Status.IPs = addresses(p.api)
	terminal := podutil.IsPodPhaseTerminal(p.api.Phase)
	if !terminal && s.startsRunning(p) {
		metrics.PodStartDuration.Observe(metrics.SinceInSeconds(firstSeen(p.Pod)))
	}
	s.statuses.SetPodStatus(klog.FromContext(ctx), p.Pod, p.api)
	if terminal {
		p.outcome.Terminal = true
		return endPhase, nil
	}
	return nextStep, nil
}

// startsRunning is true the first time that the pod is running. A pod that ran before the agent was started is not
// counted. (Stock also counts the first synchronization of every pod, in which no container runs yet.)
func (s publishStatus) startsRunning(p *syncPass) bool {
	if p.api.Phase != v1.PodRunning || firstSeen(p.Pod).IsZero() {
		return false
	}
	previous, ok := s.statuses.GetPodStatus(p.Pod.UID)
	if !ok {
		previous = p.Pod.Status
	}
	return previous.Phase == v1.PodPending || previous.Phase == ""
}

// addresses returns the published addresses of the pod, from which the environment of its containers is made. The
// runtime reports none for a pod in the host's network; the generator sets those of the host.
func addresses(status v1.PodStatus) []string {
	if len(status.PodIPs) == 0 && status.PodIP != "" {
		return []string{status.PodIP}
	}
	ips := make([]string, 0, len(status.PodIPs))
	for _, ip := range status.PodIPs {
		ips = append(ips, ip.IP)
	}
	return ips
}
