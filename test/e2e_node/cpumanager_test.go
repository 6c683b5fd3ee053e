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

// exclusiveCPUs gives guaranteed pods with whole CPUs CPUs of their own. Half a CPU is reserved, which keeps a whole one, CPU 0, from
// pods that want such, and leaves the other half of it to the rest.
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

// withPolicies restarts the kubelet with other policies of the CPU or the memory manager; the first configuration comes back when the
// test ends. Both refuse the checkpoints of the other, as stock does: the node counts as drained.
func (s *space) withPolicies(tune func(*kubeletv1beta1.KubeletConfiguration)) {
	s.t.Helper()
	restart := func(ctx context.Context, tune func(*kubeletv1beta1.KubeletConfiguration)) error {
		return errors.Join(node.StopKubelet(ctx), forgetPolicies(), node.StartKubelet(ctx, tune))
	}
	s.must(restart(s.ctx, tune))
	s.t.Cleanup(func() {
		if err := restart(context.Background(), nil); err != nil {
			s.t.Error(err)
		}
	})
}

func forgetPolicies() error {
	var errs []error
	for _, name := range []string{"cpu_manager_state", memoryState} {
		if err := os.Remove(filepath.Join(node.Layout().KubeletRoot(), name)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// guaranteed is a pod with one CPU of its own.
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

// runsOn waits until the pod may use those CPUs: the pool of the others is put right by a loop.
func (s *space) runsOn(pod *v1.Pod, cpus string) {
	s.t.Helper()
	s.eventually(podTimeout, func(context.Context) error {
		if got := s.cpusOf(pod); got != cpus {
			return fmt.Errorf("pod %s may use the CPUs %s, want %s", pod.Name, got, cpus)
		}
		return nil
	})
}

// ownsCPU waits until the PodResources API says that the pod has that CPU for itself.
func (s *space) ownsCPU(pod string, cpu int64) {
	s.t.Helper()
	s.eventually(podTimeout, func(ctx context.Context) error {
		got, err := s.podResources(ctx, pod)
		if err == nil && !slices.Equal(got.CpuIds, []int64{cpu}) {
			err = fmt.Errorf("%s owns the CPUs %v, want %d", pod, got.CpuIds, cpu)
		}
		return err
	})
}

// TestExclusiveCPUSurvivesRestarts gives a pod a CPU of its own. It keeps it when the kubelet is restarted, crashes, or is the upstream
// one, and the others keep off.
func TestExclusiveCPUSurvivesRestarts(t *testing.T) {
	s := newSpace(t)
	s.withExclusiveCPUs()
	owner, neighbour := s.ready(guaranteed("owner")), s.ready(kit.IdlePod("neighbour"))
	cpu := s.cpusOf(owner)
	var number int64
	if _, err := fmt.Sscan(cpu, &number); err != nil || number == 0 {
		t.Fatalf("the pod with a CPU of its own may use %s", cpu)
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
