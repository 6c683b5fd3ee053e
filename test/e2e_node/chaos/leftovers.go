package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Found is what exists on the node, by the UID of the pod to which it belongs.
type Found struct {
	// Running are descriptions of containers and sandboxes; those of a container begin with its name.
	Running map[string][]string
	// Cgroups and Mounts are paths, Folders those of pods below the kubelet's root.
	Cgroups, Mounts, Folders map[string][]string
	// Workers are descriptions of the pod workers of the kubelet.
	Workers map[string][]string
	// Strays are running processes of containerd that its CRI does not know.
	Strays []string
}

// Wanted is what may exist.
type Wanted struct {
	// Active are the UIDs of pods that have not ended. Known are these and those of pods that have ended and are still in
	// the API.
	Active, Known map[string]bool
	// Runs is what must exist, by the UID of a pod: a worker, and the container of that name, if there is one.
	Runs map[string]string
}

// Missing returns what does not exist on the node and must, whatever the API shows.
func Missing(found Found, wanted Wanted) []string {
	var missing []string
	for _, uid := range slices.Sorted(maps.Keys(wanted.Runs)) {
		if len(found.Workers[uid]) == 0 {
			missing = append(missing, fmt.Sprintf("no worker of pod %s", uid))
		}
		container := wanted.Runs[uid]
		isIt := func(text string) bool { return strings.HasPrefix(text, container+" ") }
		if container != "" && !slices.ContainsFunc(found.Running[uid], isIt) {
			missing = append(missing, fmt.Sprintf("container %s of pod %s does not run: %q", container, uid, found.Running[uid]))
		}
	}
	return missing
}

// Leftovers returns everything that exists on the node and belongs to no pod that may have it.
func Leftovers(found Found, wanted Wanted) []string {
	var left []string
	report := func(what string, found map[string][]string, allowed map[string]bool) {
		for _, uid := range slices.Sorted(maps.Keys(found)) {
			if !allowed[uid] {
				left = append(left, fmt.Sprintf("%s of pod %s: %s", what, uid, strings.Join(found[uid], ", ")))
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

// UIDOfPath returns the UID of the pod to which a path below the kubelet's root belongs, as in ROOT/pods/UID/…; "" if
// there is none.
func UIDOfPath(root, path string) string {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/pods/")
	if !ok {
		return ""
	}
	uid, _, _ := strings.Cut(rest, "/")
	return uid
}

// UIDOfCgroup returns the UID in the name of a pod's cgroup, in which the systemd driver writes underscores.
func UIDOfCgroup(name string) string { return strings.ReplaceAll(name, "_", "-") }
