package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Found is what there is on the node of pods, each by the UID of its pod.
type Found struct {
	// Running are containers and sandboxes, in words.
	Running map[string][]string
	// Cgroups and Mounts are paths, Folders those of pods below the kubelet's
	// root.
	Cgroups, Mounts, Folders map[string][]string
	// Workers are the pod workers of the agent, in words.
	Workers map[string][]string
	// Strays are running processes of containerd that its CRI does not know.
	Strays []string
}

// Wanted is what there may be.
type Wanted struct {
	// Active are the UIDs of pods that have not ended; Known, of these and of
	// those that ended and are in the API still.
	Active, Known map[string]bool
}

// Leftovers is everything that is there and belongs to no pod.
func Leftovers(found Found, wanted Wanted) []string {
	var left []string
	report := func(what string, things map[string][]string, may map[string]bool) {
		for _, uid := range slices.Sorted(maps.Keys(things)) {
			if !may[uid] {
				left = append(left, fmt.Sprintf("%s of pod %s: %s", what, uid, strings.Join(things[uid], ", ")))
			}
		}
	}
	report("running", found.Running, wanted.Active)
	report("control groups", found.Cgroups, wanted.Active)
	report("mounts", found.Mounts, wanted.Active)
	report("folder", found.Folders, wanted.Known)
	report("worker", found.Workers, wanted.Known)
	for _, id := range found.Strays {
		left = append(left, "running and unknown to the CRI: "+id)
	}
	return left
}

// UIDOfPath is the UID of the pod that a path below the kubelet's root belongs
// to: ROOT/pods/UID/…; "" if none.
func UIDOfPath(root, path string) string {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/pods/")
	if !ok {
		return ""
	}
	uid, _, _ := strings.Cut(rest, "/")
	return uid
}

// UIDOfCgroup is the UID in the name of a pod's control group, in which the
// driver systemd writes underscores.
func UIDOfCgroup(name string) string { return strings.ReplaceAll(name, "_", "-") }
