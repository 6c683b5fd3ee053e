package podstatus

import (
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/utils/lru"
)

// reasonCacheSize is the maximum number of start errors, about ten for each of 100 pods. If an entry is evicted, its
// waiting reason is missing until the next attempt to start the container.
const reasonCacheSize = 1000

// Reason is why a container could not be started.
type Reason struct {
	// Err has the reason (ErrImagePull, CrashLoopBackOff, …) as its text. It is never nil.
	Err error
	// Message is the human-readable explanation.
	Message string
}

// ReasonCache stores the last start error of each container, which is the reason of a waiting container. It is safe for
// concurrent use, and does not survive a restart.
type ReasonCache struct {
	entries *lru.Cache
}

type reasonKey struct {
	pod       types.UID
	container string
}

// NewReasonCache returns an empty cache.
func NewReasonCache() *ReasonCache {
	return &ReasonCache{entries: lru.New(reasonCacheSize)}
}

// Add records that a container could not be started. A nil err removes the record instead.
func (c *ReasonCache) Add(pod types.UID, container string, err error, message string) {
	if err == nil {
		c.Remove(pod, container)
		return
	}
	c.entries.Add(reasonKey{pod, container}, Reason{Err: err, Message: message})
}

// Update records the results of one synchronization of a pod with the runtime: a failed start is recorded, a successful
// one removes the record. Results of other actions are ignored.
func (c *ReasonCache) Update(pod types.UID, result kubecontainer.PodSyncResult) {
	for _, r := range result.SyncResults {
		if r.Action != kubecontainer.StartContainer {
			continue
		}
		if container, ok := r.Target.(string); ok {
			c.Add(pod, container, r.Error, r.Message)
		}
	}
}

// Remove removes the record of a container.
func (c *ReasonCache) Remove(pod types.UID, container string) {
	c.entries.Remove(reasonKey{pod, container})
}

// Get returns the last start error of a container, and whether there is one.
func (c *ReasonCache) Get(pod types.UID, container string) (*Reason, bool) {
	v, ok := c.entries.Get(reasonKey{pod, container})
	if !ok {
		return nil, false
	}
	reason := v.(Reason)
	return &reason, true
}
