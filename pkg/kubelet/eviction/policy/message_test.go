package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// TestMemoryInMessages: what a pod has used up within seconds is not in its stats yet. The cgroup of the pod shows it,
// and says which container it is if there is only one.
func TestMemoryInMessages(t *testing.T) {
	now := time.Unix(1000, 0)
	facts := func(containers ...string) *snapshot.Facts {
		f := &snapshot.Facts{Name: "pod"}
		for _, name := range containers {
			f.Containers = append(f.Containers, snapshot.ContainerFacts{
				Name: name, MemoryRequest: snapshot.Quantity{Text: "1Gi", Amount: snapshot.Bytes(gi)},
			})
		}
		return f
	}
	stats := func(containers ...string) *snapshot.Usage {
		u := &snapshot.Usage{Memory: snapshot.Bytes(2 * gi)}
		for _, name := range containers {
			u.Containers = append(u.Containers, snapshot.ContainerUsage{Name: name, Memory: snapshot.Bytes(2 * gi)})
		}
		return u
	}
	cgroup := &snapshot.Memory{WorkingSet: snapshot.Known(snapshot.Bytes(5*gi), now)}
	podLevel := facts("a", "b")
	podLevel.PodLevelMemory = &snapshot.Quantity{Text: "3Gi", Amount: snapshot.Bytes(3 * gi)}
	for name, test := range map[string]struct {
		pod  snapshot.Pod
		want string
		// annotated is the usage in the annotation about containers, "-" without annotations.
		annotated string
	}{
		"stats only": {snapshot.Pod{Facts: facts("a"), Usage: stats("a")}, "Container a was using 2Gi", "2Gi"},
		"its cgroup too": {
			snapshot.Pod{Facts: facts("a"), Usage: stats("a"), Cgroup: cgroup}, "Container a was using 5Gi", "5Gi",
		},
		"its cgroup only":  {snapshot.Pod{Facts: facts("a"), Cgroup: cgroup}, "Container a was using 5Gi", "5Gi"},
		"nothing is known": {snapshot.Pod{Facts: facts("a")}, "", "-"},
		"the cgroup could not be read": {
			snapshot.Pod{Facts: facts("a"), Usage: stats("a"), Cgroup: &snapshot.Memory{}}, "Container a was using 2Gi", "2Gi",
		},
		"two containers": {
			snapshot.Pod{Facts: facts("a", "b"), Usage: stats("a", "b"), Cgroup: cgroup}, "Container a was using 2Gi", "2Gi,2Gi",
		},
		"two containers without stats": {snapshot.Pod{Facts: facts("a", "b"), Cgroup: cgroup}, "", ""},
		"a container for debugging too": {
			snapshot.Pod{Facts: facts("a"), Usage: stats("a", "debug"), Cgroup: cgroup}, "Container a was using 2Gi", "2Gi",
		},
		"a container for debugging alone": {snapshot.Pod{Facts: facts("a"), Usage: stats("debug"), Cgroup: cgroup}, "", ""},
		"the container does not run":      {snapshot.Pod{Facts: facts("a"), Usage: stats(), Cgroup: cgroup}, "", ""},
		"a request of the pod": {
			snapshot.Pod{Facts: podLevel, Usage: stats("a", "b"), Cgroup: cgroup},
			"Pod pod was using 5Gi, request is 3Gi", "2Gi,2Gi",
		},
	} {
		t.Run(name, func(t *testing.T) {
			th := threshold(snapshot.MemoryAvailable, "1Gi")
			o := snapshot.Observation{Available: gi / 2, Capacity: 32 * gi, At: now}
			message, annotations := evictionMessage(&th, o, &test.pod)
			if strings.Contains(message, "was using") != (test.want != "") || !strings.Contains(message, test.want) {
				t.Errorf("message %q, want %q in it", message, test.want)
			}
			got, found := annotations[OffendingContainersUsageKey]
			if !found {
				got = "-"
			}
			if got != test.annotated {
				t.Errorf("annotation %q, want %q", got, test.annotated)
			}
			disk := threshold(snapshot.NodeFsAvailable, "1Gi")
			if message, _ := evictionMessage(&disk, o, &test.pod); strings.Contains(message, "was using") {
				t.Errorf("for a disk: %q", message)
			}
		})
	}
}
