package podworkers

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// ForgetOvertaken forgets what earlier runs of the agent have begun of pods that run a container which was made since: another kubelet was
// here in between, and went on with them. running is what the runtime runs. It is for the time before any pod is seen; the status
// cache may still be empty when the first ones are.
func (w *Workers) ForgetOvertaken(running []*kubecontainer.Pod) {
	if w.cfg.Terminations == nil {
		return
	}
	pods := make(map[types.UID]*kubecontainer.Pod, len(running))
	for _, pod := range running {
		pods[pod.ID] = pod
	}
	w.cfg.Terminations.DeleteFunc(func(r terminations.Record) bool {
		pod, runs := pods[r.UID]
		return runs && slices.ContainsFunc(pod.Containers, func(c *kubecontainer.Container) bool {
			return c.State == kubecontainer.ContainerStateRunning && time.Unix(0, c.CreatedAt).After(r.Requested.Add(startMargin))
		})
	})
}
