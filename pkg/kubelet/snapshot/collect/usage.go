package collect

import (
	"math"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// podStats are the pods of a summary.
type podStats []statsapi.PodStats

func (s *podStats) Len() int                             { return len(*s) }
func (s *podStats) UID(i int) string                     { return (*s)[i].PodRef.UID }
func (s *podStats) Usages(from, to int) []snapshot.Usage { return usagesOf((*s)[from:to]) }

// usagesOf converts stats. The containers of all pods share one array, and so do their volumes.
func usagesOf(pods []statsapi.PodStats) []snapshot.Usage {
	numContainers, numVolumes := 0, 0
	for i := range pods {
		numContainers += len(pods[i].Containers)
		numVolumes += len(pods[i].VolumeStats)
	}
	usages := make([]snapshot.Usage, len(pods))
	containers := make([]snapshot.ContainerUsage, numContainers)
	volumes := make([]snapshot.VolumeUsage, numVolumes)
	for i := range pods {
		stats, u := &pods[i], &usages[i]
		convertPod(stats, u)
		n := len(stats.Containers)
		u.Containers, containers = containers[:n:n], containers[n:]
		for j := range stats.Containers {
			convertContainer(&stats.Containers[j], &u.Containers[j])
		}
		n = len(stats.VolumeStats)
		u.Volumes, volumes = volumes[:n:n], volumes[n:]
		for j := range stats.VolumeStats {
			v := &stats.VolumeStats[j]
			u.Volumes[j] = snapshot.VolumeUsage{Name: v.Name, FsUsage: fsUsage(&v.FsStats)}
		}
	}
	return usages
}

func convertPod(stats *statsapi.PodStats, u *snapshot.Usage) {
	u.Memory, u.AnonymousMemory = snapshot.Unknown, snapshot.Unknown
	if m := stats.Memory; m != nil {
		u.Memory, u.AnonymousMemory = amount[snapshot.Bytes](m.WorkingSetBytes), amount[snapshot.Bytes](m.RSSBytes)
		if !m.Time.IsZero() {
			u.MemoryDate = m.Time.UnixNano()
		}
	}
	u.PIDs = snapshot.Unknown
	if p := stats.ProcessStats; p != nil {
		u.PIDs = amount[snapshot.PIDs](p.ProcessCount)
	}
	u.LocalStorage = fsUsage(stats.EphemeralStorage).Bytes
}

func convertContainer(stats *statsapi.ContainerStats, u *snapshot.ContainerUsage) {
	u.Name, u.Memory = stats.Name, snapshot.Unknown
	if m := stats.Memory; m != nil {
		u.Memory = amount[snapshot.Bytes](m.WorkingSetBytes)
	}
	u.WritableLayer, u.Logs = fsUsage(stats.Rootfs), fsUsage(stats.Logs)
}

func fsUsage(fs *statsapi.FsStats) snapshot.FsUsage {
	if fs == nil {
		return snapshot.FsUsage{Bytes: snapshot.Unknown, Inodes: snapshot.Unknown}
	}
	return snapshot.FsUsage{Bytes: amount[snapshot.Bytes](fs.UsedBytes), Inodes: amount[snapshot.Inodes](fs.InodesUsed)}
}

// amount is a reported number, Unknown if there is none or it does not fit.
func amount[T snapshot.Amount](n *uint64) T {
	if n == nil || *n > math.MaxInt64 {
		return snapshot.Unknown
	}
	return T(*n)
}
