package policy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Names of limits, as in stock. They are labels of the metric of evictions.
const (
	EmptyDirLimit         = "emptydirfs.limit"
	PodStorageLimit       = "ephemeralpodfs.limit"
	ContainerStorageLimit = "ephemeralcontainerfs.limit"
)

// immediateGrace is the grace period of evictions for hard thresholds and limits, in seconds.
const immediateGrace = 1

// localStorageVictims returns the pods that exceed a limit on local storage, in the order of UIDs. It is independent of
// the needs of the node.
func localStorageVictims(s *snapshot.Snapshot, t Timing) []Victim {
	var victims []Victim
	for i := range s.Pods {
		pod := &s.Pods[i]
		if pod.Limits == nil || pod.Critical || pod.Usage == nil || isStopping(s, pod, t) {
			continue
		}
		limit, message := exceededLimit(pod)
		if limit == "" {
			continue
		}
		victims = append(victims, Victim{
			Pod: pod, Cause: Cause{Kind: LocalStorageLimit, Limit: limit}, GraceSeconds: immediateGrace,
			Message: message, Expected: pod.Release(s.Layout), Hasten: pod.Terminating != nil,
		})
	}
	slices.SortFunc(victims, func(a, b Victim) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) })
	return victims
}

// isStopping reports whether the pod ends soon, or a kill of it has failed a moment ago.
func isStopping(s *snapshot.Snapshot, pod *snapshot.Pod, t Timing) bool {
	for i := range s.InFlight {
		if s.InFlight[i].UID == pod.UID {
			f := &s.InFlight[i]
			return f.State != snapshot.Stopping || f.Deadline.Sub(s.Taken) <= t.Patience
		}
	}
	return pod.Terminating != nil && !pod.Terminating.Deadline.IsZero() &&
		pod.Terminating.Deadline.Sub(s.Taken) <= t.Patience
}

// exceededLimit returns the first limit that the pod exceeds, of a volume, the pod or a container, with the message of
// the eviction. Unknown usage exceeds no limit.
func exceededLimit(pod *snapshot.Pod) (limit, message string) {
	for i := range pod.Limits.EmptyDirs {
		l := &pod.Limits.EmptyDirs[i]
		if volumeUsage(pod.Usage, l.Name) > l.Limit.Amount {
			return EmptyDirLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", l.Name, l.Limit.Text)
		}
	}
	if l := pod.Limits.Pod; l != nil && pod.Usage.LocalStorage > l.Amount {
		return PodStorageLimit,
			fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", l.Text)
	}
	for i := range pod.Usage.Containers {
		used := &pod.Usage.Containers[i]
		for j := range pod.Limits.Containers {
			l := &pod.Limits.Containers[j]
			if l.Name == used.Name && containerDisk(used) > l.Limit.Amount {
				return ContainerStorageLimit,
					fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", l.Name, l.Limit.Text)
			}
		}
	}
	return "", ""
}

// containerDisk returns the size of logs and writable layer, on whatever device the latter is (kubernetes issue
// 139205).
func containerDisk(c *snapshot.ContainerUsage) snapshot.Bytes {
	logs, layer := max(0, c.Logs.Bytes), max(0, c.WritableLayer.Bytes)
	return snapshot.Bytes(saturatingAdd(int64(logs), int64(layer)))
}

// volumeUsage returns the usage of a volume by its last entry, Unknown without one.
func volumeUsage(u *snapshot.Usage, name string) snapshot.Bytes {
	for i := len(u.Volumes) - 1; i >= 0; i-- {
		if u.Volumes[i].Name == name {
			return u.Volumes[i].Bytes
		}
	}
	return snapshot.Unknown
}
