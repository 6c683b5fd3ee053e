package kubelet

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/cgroupkill"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/fence"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/terminations"
)

// memoryLimits are pod cgroups with one limit of memory.
type memoryLimits int64

func (m memoryLimits) GetPodCgroupConfig(_ *v1.Pod, name v1.ResourceName) (*cm.ResourceConfig, error) {
	shares, limit := uint64(2), int64(m)
	if name == v1.ResourceMemory {
		return &cm.ResourceConfig{Memory: &limit}, nil
	}
	return &cm.ResourceConfig{CPUShares: &shares}, nil
}

// The limit of a fence is not one of the pod: its status keeps the earlier one.
func TestStatusDoesNotShowTheFence(t *testing.T) {
	const fenced, round = 307 * 4096, 300 << 20
	if !fence.IsFence(fenced) || fence.IsFence(round) {
		t.Fatal("the test does not know what a fence is")
	}
	for _, test := range []struct {
		limit       int64
		terminating bool
		shown       bool
	}{
		{limit: fenced, terminating: true},
		{limit: fenced, shown: true}, // by chance
		{limit: round, terminating: true, shown: true},
	} {
		c := unfencedCgroups{memoryLimits(test.limit), func(types.UID) bool { return test.terminating }}
		memory, err := c.GetPodCgroupConfig(&v1.Pod{}, v1.ResourceMemory)
		if got := cm.MemoryLimitsFromConfig(memory); err != nil || (got != nil) != test.shown {
			t.Errorf("%+v: %v, %v", test, got, err)
		}
		cpu, err := c.GetPodCgroupConfig(&v1.Pod{}, v1.ResourceCPU)
		if err != nil || cpu == nil || cpu.CPUShares == nil {
			t.Errorf("%+v: CPU %v, %v", test, cpu, err)
		}
	}
}

// The limits without a fence are those with which the container manager creates the cgroup.
func TestLimitsWithoutAFence(t *testing.T) {
	f := &podFences{pidsLimit: 100}
	pod := func(limits ...string) *v1.Pod {
		p := &v1.Pod{}
		for _, limit := range limits {
			c := v1.Container{}
			if limit != "" {
				c.Resources.Limits = v1.ResourceList{v1.ResourceMemory: resource.MustParse(limit)}
				c.Resources.Requests = c.Resources.Limits
			}
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		return p
	}
	for _, test := range []struct {
		pod  *v1.Pod
		want int64
	}{
		{pod("100Mi", "50Mi"), 150 << 20},
		{pod("100Mi", ""), 0},
		{pod(""), 0},
	} {
		if got, want := f.expected(test.pod), (fence.Expected{Memory: test.want, PIDs: 100}); got != want {
			t.Errorf("limits %+v, want %+v", got, want)
		}
	}
}

// onePodCgroup finds the cgroup of the only pod.
type onePodCgroup struct {
	cm.PodContainerManager
	path string
}

func (c onePodCgroup) GetPodContainerName(*v1.Pod) (cm.CgroupName, string) { return nil, c.path }

// fencedPod makes the cgroup of a pod that has a fence, and returns its path and the fences of an agent that starts.
// record is that of the termination of the pod, nil without one.
func fencedPod(t *testing.T, limit int, record *terminations.Record) (dir string, f *podFences) {
	t.Helper()
	mount := t.TempDir()
	dir = filepath.Join(mount, "kubepods", "pod")
	files := map[string]string{
		"memory.max": strconv.Itoa(limit), "memory.swap.max": "max", "memory.oom.group": "1", "pids.max": "max",
		"cgroup.kill": "0", "cgroup.procs": "", "cgroup.events": "populated 0\nfrozen 0\n", "cgroup.freeze": "0",
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, content := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mounts := map[string]string{"memory": mount, "pids": mount, "": mount}
	fencer := fence.New(fence.Config{Unified: true, Mounts: mounts})
	return dir, &podFences{
		fencer: fencer, left: fence.NewLeft(fencer),
		killer:  cgroupkill.New(cgroupkill.Config{Unified: true, Mounts: mounts}),
		cgroups: func() cm.PodContainerManager { return onePodCgroup{path: "/kubepods/pod"} },
		record: func(types.UID) (terminations.Record, bool) {
			if record == nil {
				return terminations.Record{}, false
			}
			return *record, true
		},
		fenced: func(types.UID) bool { return false },
	}
}

// An earlier run of the agent has fenced a pod and ended at once. If the termination of the pod is recorded, for
// whatever cause, the pod is killed by its cgroup and keeps the fence: the eviction of a pod that had been deleted is
// recorded as its deletion. Otherwise the pod gets its limits back.
func TestEarlierFenceOfADeletedPod(t *testing.T) {
	const fenced = 307 * 4096
	if !fence.IsFence(fenced) {
		t.Fatal("the test does not know what a fence is")
	}
	for name, test := range map[string]struct {
		record *terminations.Record
		killed bool
	}{
		"evicted":                   {&terminations.Record{Cause: terminations.Eviction}, true},
		"deleted, and evicted then": {&terminations.Record{Cause: terminations.Deletion}, true},
		"killed, and evicted then":  {&terminations.Record{Cause: terminations.Kill}, true},
		"without a record":          {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, f := fencedPod(t, fenced, test.record)
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "one"}}
			known := func() (map[types.UID]bool, error) { return map[types.UID]bool{"one": true}, nil }
			if err := f.left.Begin(known); err != nil {
				t.Fatal(err)
			}
			if err := f.repair(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			content := func(name string) string {
				data, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				return string(data)
			}
			killed, lifted := strings.HasPrefix(content("cgroup.kill"), "1"), strings.HasPrefix(content("memory.max"), "max")
			if killed != test.killed || lifted == test.killed {
				t.Errorf("killed %t, lifted %t; want killed %t", killed, lifted, test.killed)
			}
		})
	}
}
