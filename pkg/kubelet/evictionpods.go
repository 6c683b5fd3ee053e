package kubelet

import (
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podview"
)

// addPatience is how long the pods of the API server may take to be added before evictions do not wait any more for the
// rest of them: a device plugin that does not answer holds up the admission of its pod, and all that are added later.
const addPatience = 10 * time.Second

// evictionPods are the pods that the eviction manager and its plugins know: only static ones before those of the API
// server have been added. Otherwise an agent that starts under pressure would evict the first pod that is added, and
// not the one that uses up the memory. Static pods are never evicted.
type evictionPods struct {
	view    *podview.View
	forward *forward
	ready   *addedSources
	clock   clock.PassiveClock
	// began is when a pod of the API server was first seen, nil before.
	began atomic.Pointer[time.Time]
}

// complete reports whether all pods are known, or have taken too long. It is called before they are read: the last ones
// may be added meanwhile.
func (p *evictionPods) complete() bool {
	began := p.began.Load()
	return p.ready.api.Load() || (began != nil && p.clock.Since(*began) >= addPatience)
}

func (p *evictionPods) active() []*v1.Pod {
	complete := p.complete()
	pods := p.forward.excludeWaiting(p.view.Allocated())
	if complete {
		return pods
	}
	return slices.DeleteFunc(pods, func(pod *v1.Pod) bool { return !p.alwaysKnown(pod) })
}

func (p *evictionPods) byUID(uid types.UID) (*v1.Pod, bool) {
	complete := p.complete()
	if p.forward.isWaiting(uid) {
		return nil, false
	}
	pod, ok := p.view.AllocatedByUID(uid)
	if !ok || (!complete && !p.alwaysKnown(pod)) {
		return nil, false
	}
	return pod, true
}

// alwaysKnown reports whether a pod is static. For another one it records when the first was seen: addPatience begins.
func (p *evictionPods) alwaysKnown(pod *v1.Pod) bool {
	if kubetypes.IsStaticPod(pod) {
		return true
	}
	p.began.CompareAndSwap(nil, new(p.clock.Now()))
	return false
}
