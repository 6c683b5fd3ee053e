//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// exclusiveCPUs gives Guaranteed pods that request whole CPUs exclusive CPUs. Half a CPU is reserved: CPU 0 is never
// exclusive, and the other half of it belongs to the shared pool.
func exclusiveCPUs(config *kubeletv1beta1.KubeletConfiguration) {
	config.CPUManagerPolicy = "static"
	config.CPUManagerReconcilePeriod = metav1.Duration{Duration: time.Second}
	config.SystemReserved["cpu"] = "500m"
}

// withExclusiveCPUs restarts the kubelet with the static policy.
func (s *space) withExclusiveCPUs() {
	s.t.Helper()
	s.withPolicies(exclusiveCPUs)
}

// withPolicies restarts the kubelet with other policies of the CPU or the memory manager until the test ends. A manager
// rejects the checkpoint of another policy, as stock's does, so the checkpoints are removed: the node counts as
// drained.
func (s *space) withPolicies(tune func(*kubeletv1beta1.KubeletConfiguration)) {
	s.t.Helper()
	restart := func(ctx context.Context, tune func(*kubeletv1beta1.KubeletConfiguration)) error {
		return errors.Join(node.StopKubelet(ctx), removePolicyCheckpoints(), node.StartKubelet(ctx, tune))
	}
	s.must(restart(s.ctx, tune))
	s.t.Cleanup(func() {
		if err := restart(context.Background(), nil); err != nil {
			s.t.Error(err)
		}
	})
}

func removePolicyCheckpoints() error {
	var errs []error
	for _, name := range []string{"cpu_manager_state", memoryState} {
		if err := os.Remove(filepath.Join(node.Layout().KubeletRoot(), name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// guaranteed is a pod with one exclusive CPU.
func guaranteed(name string) *v1.Pod {
	pod := kit.IdlePod(name)
	all := kit.Resources("1", "32Mi")
	pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: all, Limits: all}
	return pod
}

// cpusOf is the list of CPUs that the pod's processes may use.
func (s *space) cpusOf(pod *v1.Pod) string {
	s.t.Helper()
	return s.sh(pod, "awk '/^Cpus_allowed_list/ {print $2}' /proc/self/status")
}

// runsOn waits until the pod may use exactly those CPUs. A loop of the kubelet updates the pods of the shared pool.
func (s *space) runsOn(pod *v1.Pod, cpus string) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		if got := s.cpusOf(pod); got != cpus {
			return fmt.Errorf("pod %s may use the CPUs %s, want %s", pod.Name, got, cpus)
		}
		return nil
	})
}

// ownsCPU waits until the PodResources API reports that the CPU is exclusive to the pod.
func (s *space) ownsCPU(pod string, cpu int64) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := s.podResources(ctx, pod)
		if err == nil && !slices.Equal(got.CpuIds, []int64{cpu}) {
			err = fmt.Errorf("%s has the exclusive CPUs %v, want %d", pod, got.CpuIds, cpu)
		}
		return err
	})
}

// TestExclusiveCPUSurvivesRestarts gives a pod an exclusive CPU. The pod keeps it, and no other pod uses it, when the
// kubelet is restarted, crashes, or is replaced by the stock kubelet.
func TestExclusiveCPUSurvivesRestarts(t *testing.T) {
	s := spaceForRestart(t)
	s.withExclusiveCPUs()
	owner, neighbour := s.ready(guaranteed("owner")), s.ready(kit.IdlePod("neighbour"))
	cpu := s.cpusOf(owner)
	var number int64
	if _, err := fmt.Sscan(cpu, &number); err != nil || number == 0 {
		t.Fatalf("the pod with an exclusive CPU may use %s", cpu)
	}
	s.ownsCPU("owner", number)
	shared := s.sharedWithout(number)
	s.runsOn(neighbour, shared)
	s.swapKubelets(exclusiveCPUs, func() {
		s.ownsCPU("owner", number)
		s.expect("CPU of the owner", s.cpusOf(owner), cpu)
		s.expect("CPUs of the neighbour", s.cpusOf(neighbour), shared)
	})

	s.remove(owner)
	s.runsOn(neighbour, s.sharedWithout(-1))
}

// sharedWithout is the list of all CPUs of the machine but one.
func (s *space) sharedWithout(cpu int64) string {
	s.t.Helper()
	data, err := os.ReadFile("/sys/devices/system/cpu/online")
	s.must(err)
	all, err := cpuset.Parse(strings.TrimSpace(string(data)))
	s.must(err)
	return all.Difference(cpuset.New(int(cpu))).String()
}
