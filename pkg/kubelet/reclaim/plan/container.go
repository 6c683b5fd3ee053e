package plan

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Container is one that has ended.
type Container struct {
	ID string
	// Pod and Name say whose it is. Several with the same are the runs of one container.
	Pod     types.UID
	Name    string
	Created time.Time
	// Fate is that of its pod.
	Fate Fate
}

// Fate is what is known of the pod of a container that has ended.
type Fate uint8

const (
	// Lives: the pod may start the container again, or it is not known what becomes of it.
	Lives Fate = iota
	// Ended: the pod will start nothing again, but it is still in the API, where somebody may ask for its logs.
	Ended
	// Gone: the pod was evicted, or was deleted and has stopped. Its containers go in any case.
	Gone
)

// ContainerPolicy says which containers that have ended stay.
type ContainerPolicy struct {
	// Keep is how many stay of each container of a pod that lives, the newest ones; negative for all.
	Keep int
	// MinAge is how long one stays after it was made.
	MinAge time.Duration
}

// Containers lists the containers that may go, in the order in which they should. Those that nobody has a use for come
// first, as garbage: of pods that are gone, then, of pods that live, those beyond what the policy keeps. Then come
// those of pods that have ended. Each of the three is in the order of their creation, then by ID. The last run of a
// container of a pod that lives stays: its logs say why it ended.
func Containers(dead []Container, p ContainerPolicy, now time.Time) (garbage, ended []Container) {
	var surplus []Container
	runs := map[unit]int{}
	// The newest come first here, so that what is beyond the number to keep is the oldest.
	for _, c := range slices.Backward(oldestFirst(dead)) {
		// The age of a container that is dated ahead of now is unknown: the clock was set back after it was made.
		if age := now.Sub(c.Created); age >= 0 && age < p.MinAge {
			continue
		}
		switch c.Fate {
		case Gone:
			garbage = append(garbage, c)
		case Ended:
			ended = append(ended, c)
		default:
			u := unit{c.Pod, c.Name}
			if runs[u]++; p.Keep >= 0 && runs[u] > p.Keep {
				surplus = append(surplus, c)
			}
		}
	}
	return append(oldestFirst(garbage), oldestFirst(surplus)...), oldestFirst(ended)
}

type unit struct {
	pod  types.UID
	name string
}

func oldestFirst(list []Container) []Container {
	return slices.SortedFunc(slices.Values(list), func(a, b Container) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
}
