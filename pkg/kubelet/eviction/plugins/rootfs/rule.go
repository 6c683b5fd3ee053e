package rootfs

import (
	"errors"
	"fmt"
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// The names of the plugins, which are Katalyst's.
const (
	PressureName = v1alpha1.RootfsPressurePlugin
	OveruseName  = v1alpha1.RootfsOverusePlugin
)

// Kind is what is counted.
type Kind uint8

// The kinds. NumKinds is the length of an array that is indexed by Kind.
const (
	Bytes Kind = iota
	Inodes
	NumKinds
)

// Facts are what the rules decide on.
type Facts struct {
	// FileSystem is that with the writable layers, by kind.
	FileSystem [NumKinds]snapshot.Observation
	Pods       []*v1.Pod
	// Used is what the writable layers of pods use, by kind. What is missing is unknown.
	Used [NumKinds]map[types.UID]int64
	// Ending are the pods that are being stopped. What they use will be free.
	Ending map[types.UID]bool
	// Expected is what those that are being evicted release on the file system, by kind: stats leave out containers that
	// have exited, but their layers are there until the pod is cleaned up.
	Expected [NumKinds]map[types.UID]int64
	// Outdated: the file system was last observed before the last release, and does not show its effect.
	Outdated [NumKinds]bool
}

// errLayout: it is unknown which file system has the writable layers.
var errLayout = errors.New("the layout of file systems is not known yet")

// FactsOf returns the facts of a snapshot. The file system with the writable layers is the node's without one for
// images, else that for images, unless writable layers are on one of their own. It is unknown before the layout is.
func FactsOf(s *snapshot.Snapshot, pods []*v1.Pod, ending map[types.UID]bool) *Facts {
	signals := [NumKinds]snapshot.Signal{snapshot.NodeFsAvailable, snapshot.NodeFsInodesFree}
	switch {
	case s.Layout.SplitContainerFs:
		signals = [NumKinds]snapshot.Signal{snapshot.ContainerFsAvailable, snapshot.ContainerFsInodesFree}
	case s.Layout.DedicatedImageFs:
		signals = [NumKinds]snapshot.Signal{snapshot.ImageFsAvailable, snapshot.ImageFsInodesFree}
	}
	f := &Facts{Pods: pods, Ending: ending}
	for kind := range f.Used {
		f.FileSystem[kind] = s.Signals[signals[kind]]
		if !s.Layout.Known {
			f.FileSystem[kind] = snapshot.Observation{Err: errLayout}
		}
		f.Used[kind], f.Expected[kind] = map[types.UID]int64{}, map[types.UID]int64{}
		f.Outdated[kind] = outdated(&f.FileSystem[kind], s)
	}
	for i := range s.InFlight {
		release := &s.InFlight[i].Expected.Devices[s.Layout.DeviceOf(signals[Bytes])]
		f.Expected[Bytes][s.InFlight[i].UID] = int64(release.Bytes)
		f.Expected[Inodes][s.InFlight[i].UID] = int64(release.Inodes)
	}
	layers := snapshot.Measure{WritableLayers: true}
	for i := range s.Pods {
		p := &s.Pods[i]
		if n, known := p.Disk(layers); known {
			f.Used[Bytes][p.UID] = int64(n)
		}
		if n, known := p.Inodes(layers); known {
			f.Used[Inodes][p.UID] = int64(n)
		}
	}
	return f
}

// outdated reports whether an observation is from before the last release of a pod. It is dated by the time of day: its
// age gives its time on the clock of the snapshot. One without a date, or from the future, is as new as the snapshot.
func outdated(o *snapshot.Observation, s *snapshot.Snapshot) bool {
	if !o.Known() || o.At.IsZero() {
		return false
	}
	return s.Taken.Add(-max(0, s.WallTime.Sub(o.At))).Before(s.LastRelease)
}

// fileSystem returns the observation of the file system, and whether it says how much there is: a file system that
// makes inodes as needed (btrfs) reports that it has none, and that none is free.
func (f *Facts) fileSystem(kind Kind) (*snapshot.Observation, bool) {
	o := &f.FileSystem[kind]
	return o, o.Known() && o.Capacity > 0
}

// PressureSettings are those of rootfs-pressure-eviction-plugin, by kind.
type PressureSettings struct {
	// Free is how much must be free, PodUsed how much a pod must use to be requested.
	Free, PodUsed [NumKinds]v1alpha1.FileSystemAmount
	Levels        arbiter.Levels
}

// Pressure requests the pod that uses most while less than the threshold is free and would be when all pods that are
// being stopped have ended. After a release it waits until the file system is observed again. It has no state.
func Pressure(f *Facts, s *PressureSettings) (found rule.Finding) {
	for kind := range NumKinds {
		o, known := f.fileSystem(kind)
		if !known || f.Outdated[kind] {
			continue
		}
		threshold, set := s.Free[kind].Of(o.Capacity)
		free := o.Available
		for uid := range f.Ending {
			free += min(max(f.Used[kind][uid], f.Expected[kind][uid]), math.MaxInt64-max(0, free))
		}
		if !set || free >= threshold {
			continue
		}
		least, _ := s.PodUsed[kind].Of(o.Capacity)
		candidates := f.candidates(kind, &s.Levels, func(rule.Level) int64 { return max(1, least) })
		if len(candidates) == 0 {
			continue
		}
		for _, chosen := range rule.Requested(rule.Rank(candidates), f.Pods) {
			found.Pods = append(found.Pods, arbiter.PodDemand{UID: chosen, Reason: fmt.Sprintf(
				"%s of the file system of containers are free, the threshold is %s; the pod uses %s",
				kind.format(o.Available), kind.format(threshold), kind.format(f.Used[kind][chosen]))})
		}
		return found
	}
	return found
}

// OveruseSettings are those of rootfs-overuse-eviction-plugin, by kind: how much a shared or a reclaimed pod may use.
type OveruseSettings struct {
	Shared, Reclaimed [NumKinds]v1alpha1.FileSystemAmount
	Levels            arbiter.Levels
}

// Overuse requests the pod that exceeds the threshold of its level most: by bytes, or by inodes if none does by bytes.
// It has no state.
func Overuse(f *Facts, s *OveruseSettings) (found rule.Finding) {
	for kind := range NumKinds {
		o, known := f.fileSystem(kind)
		thresholdOf := func(level rule.Level) int64 {
			amount := s.Shared[kind]
			if level == rule.Reclaimed {
				amount = s.Reclaimed[kind]
			}
			threshold, set := amount.Of(o.Capacity)
			if level == rule.Dedicated || !set || (amount.Relative() && !known) {
				return never
			}
			return threshold + 1
		}
		candidates := f.candidates(kind, &s.Levels, thresholdOf)
		for i := range candidates {
			c := &candidates[i]
			c.Amount /= float64(thresholdOf(c.Level) - 1)
		}
		if len(candidates) == 0 {
			continue
		}
		thresholds := map[types.UID]int64{}
		for _, c := range candidates {
			thresholds[c.UID] = thresholdOf(c.Level) - 1
		}
		for _, chosen := range rule.Requested(rule.Rank(candidates), f.Pods) {
			found.Pods = append(found.Pods, arbiter.PodDemand{UID: chosen, Reason: fmt.Sprintf(
				"writable layers use %s, which is more than the threshold %s", kind.format(f.Used[kind][chosen]),
				kind.format(thresholds[chosen]))})
		}
		return found
	}
	return found
}

// never is a threshold that no pod reaches.
const never = -1

// candidates returns the pods that use at least what least returns for their level, which is above 0, or never. The
// usage counts more than the priority.
func (f *Facts) candidates(kind Kind, levels *arbiter.Levels, least func(rule.Level) int64) (list []rule.Candidate) {
	for _, pod := range f.Pods {
		level := rule.LevelOf(pod, levels)
		used, known := f.Used[kind][pod.UID]
		threshold := least(level)
		if known && threshold != never && used >= threshold && !f.Ending[pod.UID] {
			list = append(list, rule.Candidate{UID: pod.UID, Level: level, Amount: float64(used)})
		}
	}
	return list
}

// format returns an amount as messages show it.
func (k Kind) format(n int64) string {
	if k == Inodes {
		return fmt.Sprintf("%d inodes", n)
	}
	return resource.NewQuantity(n, resource.BinarySI).String()
}
