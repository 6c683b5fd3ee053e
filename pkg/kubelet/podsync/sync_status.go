package podsync

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

// publishStatus computes the pod's status from what the runtime last reported and publishes it. When that status says that the
// containers have ended for good, the pod is terminal and nothing is set up any more.
type publishStatus struct {
	generator StatusGenerator
	statuses  StatusStore
}

func (publishStatus) Name() string { return "publish status" }

func (s publishStatus) Run(ctx context.Context, p *syncPass) (verdict, error) {
	p.api = s.generator.Generate(ctx, p.Pod, p.Status, false)
	p.Status.IPs = addresses(p.api)
	terminal := podutil.IsPodPhaseTerminal(p.api.Phase)
	if !terminal && s.startsRunning(p) {
		metrics.PodStartDuration.Observe(metrics.SinceInSeconds(firstSeen(p.Pod)))
	}
	s.statuses.SetPodStatus(klog.FromContext(ctx), p.Pod, p.api)
	if terminal {
		p.outcome.Terminal = true
		return settled, nil
	}
	return proceed, nil
}

// startsRunning is true the first time the pod is seen running. A pod that ran before the agent was started is not counted: its
// start was not seen. (Stock also counts every pod's first synchronization, in which nothing runs yet.)
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

// addresses are the pod's as published. For a pod in the host's network the runtime reports none and the generator fills in the
// host's; the containers' environment is made from these.
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
