package snapshot

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
)

// Reasons why a signal is unknown. They are fixed values, so that comparing and keeping them costs nothing.
var (
	ErrNotReported   = errors.New("the stats summary has no figures for it")
	ErrNoPodsCgroup  = errors.New("the stats summary has no entry for the cgroup of all pods")
	ErrImplausible   = errors.New("the stats summary has figures that cannot be right")
	errNeverObserved = errors.New("it was not looked at")
)

// Stats are the stats of the node and its pods that one collection has read. They are not modified afterwards, and are
// shared by all rounds that are made from them.
type Stats struct {
	// Signals holds one observation per signal, indexed by Signal.
	Signals [NumSignals]Observation
	Layout  Layout
	// Pods is nil when the stats of pods were not read.
	Pods PodStats
	// Images are the bytes of images that only this pod uses, by UID; nil where images are not apart from writable layers.
	Images map[types.UID]Bytes
	// RuntimeSilent is true when the container runtime has failed to report what pods use.
	RuntimeSilent bool
	// Err is why the collection failed; the other fields have what could be read nevertheless. It is nil when the
	// collection is complete.
	Err error
}

// PodStats are the stats of pods that one collection has read. They are converted to Usage on demand, since a round on
// a calm node needs that of few pods or of none.
type PodStats interface {
	// Len is the number of pods.
	Len() int
	// UID is the UID of the pod at an index below Len.
	UID(i int) string
	// Usages converts the stats of the pods at the indices from, from+1, ..., to-1. The result is new with each call.
	Usages(from, to int) []Usage
}

// Unobserved is the observations before the first collection: everything is unknown.
func Unobserved() [NumSignals]Observation {
	var all [NumSignals]Observation
	for i := range all {
		all[i].Err = errNeverObserved
	}
	return all
}

// FailUnknown makes cause the reason of every signal that is unknown.
func (s *Stats) FailUnknown(cause error) {
	err := fmt.Errorf("the stats summary failed: %w", cause)
	for i := range s.Signals {
		if o := &s.Signals[i]; !o.Known() {
			*o = Observation{Err: err}
		}
	}
}
