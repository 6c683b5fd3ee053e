package policy

import (
	"slices"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Effective is the thresholds that hold for a layout. The container file system is never a third device, so its
// thresholds are derived and what was configured for it is replaced (KEP-4191): those of nodefs when writable layers
// lie there, those of imagefs when they lie beside the images. While the layout is unknown nothing is derived and
// nothing is replaced.
//
// The second result lists the signals whose configured thresholds were replaced, for a warning.
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
