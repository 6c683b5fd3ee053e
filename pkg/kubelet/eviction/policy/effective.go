package policy

import (
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Effective returns the thresholds that apply to a layout. The container file system is on one of the other two
// devices, so that its thresholds are copies of theirs, and those configured for it are dropped (KEP-4191): copies of
// nodefs if writable layers are on the node's device, of imagefs if they are with the images. While the layout is
// unknown, the thresholds stay as they are configured.
//
// The second result lists the signals whose configured thresholds were dropped; the caller warns about them.
func Effective(configured []Threshold, l snapshot.Layout) ([]Threshold, []snapshot.Signal) {
	if !l.Known {
		return slices.Clone(configured), nil
	}
	source := map[snapshot.Signal]snapshot.Signal{
		snapshot.NodeFsAvailable:  snapshot.ContainerFsAvailable,
		snapshot.NodeFsInodesFree: snapshot.ContainerFsInodesFree,
	}
	if l.DedicatedImageFs && !l.SplitContainerFs {
		source = map[snapshot.Signal]snapshot.Signal{
			snapshot.ImageFsAvailable:  snapshot.ContainerFsAvailable,
			snapshot.ImageFsInodesFree: snapshot.ContainerFsInodesFree,
		}
	}
	var effective []Threshold
	var replaced []snapshot.Signal
	for _, t := range configured {
		if t.Signal == snapshot.ContainerFsAvailable || t.Signal == snapshot.ContainerFsInodesFree {
			replaced = append(replaced, t.Signal)
			continue
		}
		effective = append(effective, t)
	}
	for _, t := range configured {
		if derived, ok := source[t.Signal]; ok {
			t.Signal = derived
			effective = append(effective, t)
		}
	}
	return effective, replaced
}
