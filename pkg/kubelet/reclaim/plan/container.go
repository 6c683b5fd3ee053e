package plan

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Container is a dead container: one that has exited.
type Container struct {
	ID string
	// Dead containers with the same Pod and Name are earlier instances of one container in the pod's spec.
	Pod     types.UID
	Name    string
	Created time.Time
	// PodState is the state of its pod.
	PodState PodState
}

// PodState is the state of the pod of a dead container.
type PodState uint8

const (
	// PodActive: the pod may start the container again, or its state is unknown.
	PodActive PodState = iota
	// PodTerminated: the pod will not start a container again, but it is still in the API, so its logs can be read.
	PodTerminated
	// PodRemoved: the pod was evicted, or was deleted and has stopped. Its containers are not needed.
	PodRemoved
)

// ContainerPolicy defines which dead containers are kept.
type ContainerPolicy struct {
	// MaxPerContainer is how many instances of each container of an active pod are kept, the newest ones; negative for
	// all.
	MaxPerContainer int
	// MinAge is how long a dead container is kept after its creation.
	MinAge time.Duration
}

// Containers lists the containers that may be removed, in the order of removal. Garbage are the containers of removed
// pods, then those of active pods beyond what the policy keeps; terminated are the containers of terminated pods. Each
// of the three is ordered by creation, then by ID. The newest dead instance of a container of an active pod is kept if
// the policy requires that: its logs show why it ended.
func Containers(dead []Container, p ContainerPolicy, now time.Time) (garbage, terminated []Container) {
	var surplus []Container
	instances := map[containerName]int{}
	// The newest come first, so that the oldest are beyond the number to keep.
	for _, c := range slices.Backward(oldestFirst(dead)) {
		// The age of a container whose creation is in the future is unknown: the clock was set back after it was created.
		if age := now.Sub(c.Created); age >= 0 && age < p.MinAge {
			continue
		}
		switch c.PodState {
		case PodRemoved:
			garbage = append(garbage, c)
		case PodTerminated:
			terminated = append(terminated, c)
		default:
			name := containerName{c.Pod, c.Name}
			if instances[name]++; p.MaxPerContainer >= 0 && instances[name] > p.MaxPerContainer {
				surplus = append(surplus, c)
			}
		}
	}
	return append(oldestFirst(garbage), oldestFirst(surplus)...), oldestFirst(terminated)
}

type containerName struct {
	pod  types.UID
	name string
}

func oldestFirst(list []Container) []Container {
	return slices.SortedFunc(slices.Values(list), func(a, b Container) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}
