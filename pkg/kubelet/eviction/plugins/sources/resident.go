package sources

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Resident reads the resident sets of pods.
type Resident struct {
	*PodFiles
	key string
}

// NewResident returns a reader of resident sets. They are the anonymous memory of a pod's cgroup: anon of memory.stat
// with cgroup v2, total_rss with v1 (kernel documentation, admin-guide/cgroup-v2 and cgroup-v1/memory, 5.2).
func NewResident(cgroups Cgroups) *Resident {
	key := "total_rss"
	if cgroups.Unified {
		key = "anon"
	}
	return &Resident{NewPodFiles(cgroups, "memory", "memory.stat"), key}
}

// Bytes returns the resident sets of pods in bytes. Pods for which they are unknown are left out; the error is that of
// PodFiles.Each.
func (r *Resident) Bytes(pods []*v1.Pod) (map[types.UID]int64, error) {
	list := make(map[types.UID]int64, len(pods))
	err := r.Each(pods, func(pod types.UID, data []byte) error {
		n, ok := field(data, r.key)
		if ok {
			list[pod] = n
		}
		return required(ok, r.key)
	})
	return list, err
}
