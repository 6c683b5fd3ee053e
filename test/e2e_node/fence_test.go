//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/fence"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// fencedHeadroom is the threshold. fencedRest is what is left above it while the hog rests, fencedExcess by how much
	// it exceeds the threshold and then stops: less than a fence leaves it. All are in MiB. pagesPerTable is how many
	// pages of memory need one for their page table.
	fencedHeadroom, fencedRest, fencedExcess, pagesPerTable = 100, 100, 4, 512
	// growingExcess is the same for a hog that still grows when it is fenced, on a slow node too, and hits its fence.
	growingExcess = 80
	// fenceTime is the longest time from the signal to grow to the fence.
	fenceTime = 10 * time.Second
	// reloadPause is the time between two reloads of systemd, each of which takes seconds where the machine is emulated.
	reloadPause = 5 * time.Second
)

// TestFencesAndTheEndOfTheKubelet ends the kubelet while a pod is fenced: by SIGKILL, and by SIGTERM. The next kubelet
// goes on with the eviction, starts nothing again, and other pods have no fence. A limit on a running pod that looks
// like a fence of an earlier run is replaced by that of the pod's resources, and its status never shows it. With
// PLIMSOLL_SOAK the kubelet is also killed at many moments of an eviction, and stock's kubelet is the next one: after
// an orderly stop no pod has a fence, and after SIGKILL the pod lives under it until its limit is written as
// docs/operations.md says.
func TestFencesAndTheEndOfTheKubelet(t *testing.T) {
	s := spaceForRestart(t)
	s.restartKubelet(littleHeadroom)
	bystander := kit.IdlePod("bystander")
	bystander.Spec.Containers[0].Resources.Limits = kit.Memory("256Mi")
	bystander = s.ready(bystander)
	before := s.fingerprint()
	for _, end := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(end.String(), func(t *testing.T) { s.in(t).kubeletEndsWhileFenced(end) })
	}
	t.Run("resized meanwhile", func(t *testing.T) { s.in(t).resizedWhileFenced() })
	t.Run("a fence that is left", func(t *testing.T) { s.in(t).fenceIsLifted(bystander) })
	if os.Getenv("PLIMSOLL_SOAK") != "" {
		t.Run("killed at any moment", func(t *testing.T) { s.in(t).kubeletIsKilledWhileEvicting() })
		t.Run("swaps with stock", func(t *testing.T) { s.in(t).fencesAndStock() })
	}
	s.must(s.sameAs(before))
}

// TestFencesWhileSystemdReloads evicts three pods while they are fenced on a node whose systemd reads its units again
// and again: that sets limits of slices to what systemd has written itself, see kubernetes/kubernetes#104289. Where
// that takes the processors for so long that too little memory is left for a fence, the pod is killed by its cgroup at
// once. Then stock replaces our kubelet and gives the node back. No other pod of five is harmed, and their limits stay.
func TestFencesWhileSystemdReloads(t *testing.T) {
	s := spaceForRestart(t)
	s.must(builder.Build(s.ctx, []build.Part{build.StockKubelet()}))
	s.restartKubelet(littleHeadroom)
	limits := map[string]int64{}
	for i := range 5 {
		pod := kit.IdlePod(fmt.Sprintf("other-%d", i))
		// None of these limits looks like a fence, as 35 MiB does by chance.
		pod.Spec.Containers[0].Resources.Limits = kit.Mebibytes(64 + int64(i))
		limit, err := s.podLimit(s.ready(kit.Bound(pod)))
		s.must(err)
		limits[pod.Name] = limit
	}
	before := s.fingerprint()
	stop := s.reloadSystemd()
	fenced := 0
	for i := range 3 {
		pod, grow := s.restingHog(fmt.Sprintf("hog-%d", i), growingExcess, v1.ResourceRequirements{})
		grow()
		switch message := s.evictionEnds(pod).Status.Message; {
		case strings.Contains(message, "The pod was fenced at"):
			fenced++
		case !strings.Contains(message, "The pod was killed by its cgroup, since no fence could be set"):
			t.Errorf("pod hog-%d was evicted neither under a fence nor by its cgroup: %q", i, message)
		}
	}
	if fenced == 0 {
		t.Error("no pod was fenced")
	}
	own := node.Kubelet()
	t.Cleanup(func() { node.SetKubelet(own) })
	for _, kubelet := range []string{node.Layout().Program(build.StockKubelet().Name), own} {
		s.must(node.StopKubelet(s.ctx))
		node.SetKubelet(kubelet)
		s.must(node.StartKubelet(s.ctx, littleHeadroom))
		s.must(s.noFence())
	}
	if reloads := stop(); reloads == 0 {
		t.Error("systemd has not read its units")
	}
	s.must(s.sameAs(before))
	for name, want := range limits {
		limit, err := s.podLimit(s.get(name))
		s.must(err)
		if limit != want {
			t.Errorf("the limit of pod %s is %d, was %d", name, limit, want)
		}
	}
}

// reloadSystemd has systemd read its units again and again until stop is called, which returns how often it did.
func (s *space) reloadSystemd() (stop func() int) {
	ctx, cancel := context.WithCancel(s.ctx)
	var reloads int
	var failure error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			out, err := exec.CommandContext(ctx, "systemctl", "daemon-reload").CombinedOutput()
			if ctx.Err() == nil && err != nil {
				failure = fmt.Errorf("daemon-reload: %w: %s", err, out)
				return
			}
			reloads++
			select {
			case <-ctx.Done():
			case <-time.After(reloadPause):
			}
		}
	}()
	s.t.Cleanup(func() { cancel(); <-ended })
	return func() int {
		s.t.Helper()
		cancel()
		<-ended
		s.must(failure)
		return reloads
	}
}

// littleHeadroom sets a threshold that a kill without a fence is too slow for.
func littleHeadroom(config *kubeletv1beta1.KubeletConfiguration) {
	shortTransition(config)
	config.EvictionHard["memory.available"] = fmt.Sprintf("%dMi", fencedHeadroom)
}

func (s *space) kubeletEndsWhileFenced(end syscall.Signal) {
	pod := s.fencedHog("hog-" + strconv.Itoa(int(end)))
	if end == syscall.SIGKILL {
		s.must(node.KillKubelet(s.ctx))
	} else {
		s.must(node.StopKubelet(s.ctx))
		if limit, err := s.podLimit(pod); err == nil && fence.IsFence(limit) {
			s.t.Errorf("an orderly stop leaves the fence at %d", limit)
		}
	}
	s.must(node.StartKubelet(s.ctx, littleHeadroom))
	s.evictionEnds(pod)
}

// evictionEnds waits until the pod has ended as evicted, checks that no container was started again, and removes it.
func (s *space) evictionEnds(pod *v1.Pod) *v1.Pod {
	s.t.Helper()
	ended := s.wait(pod, podTimeout, func(pod *v1.Pod) error {
		if pod.Status.Phase == v1.PodFailed && len(pod.Status.ContainerStatuses) == 1 &&
			pod.Status.ContainerStatuses[0].State.Terminated != nil {
			return nil
		}
		return fmt.Errorf("not ended: %s", kit.Describe(pod))
	})
	s.t.Log(kit.Describe(ended))
	if ended.Status.Reason != "Evicted" || ended.Status.ContainerStatuses[0].RestartCount != 0 {
		s.t.Errorf("the fenced pod: %s", kit.Describe(ended))
	}
	s.remove(pod)
	s.noPressure()
	return ended
}

// resizedWhileFenced requests a higher limit for a pod that begins to grow at once, so that the resize may be under way
// when the pod is fenced. The pod is evicted all the same. On a slow node it has stopped growing when it is, and needs
// no fence.
func (s *space) resizedWhileFenced() {
	pod, grow := s.restingHog("resized", fencedExcess,
		v1.ResourceRequirements{Requests: kit.Memory("64Mi"), Limits: kit.Memory("4Gi")})
	s.kubectl("patch", "pod", pod.Name, "--subresource=resize", "-p",
		`{"spec":{"containers":[{"name":"main","resources":{"limits":{"memory":"5Gi"}}}]}}`)
	grow()
	s.evictionEnds(pod)
}

// kubeletIsKilledWhileEvicting kills the kubelet between 0 and 1.6 s after a pod begins to grow: before its eviction is
// accepted, while it is fenced, and when it was killed.
func (s *space) kubeletIsKilledWhileEvicting() {
	for i := range 12 {
		pod, grow := s.restingHog(fmt.Sprintf("killed-%d", i), fencedExcess, v1.ResourceRequirements{})
		grow()
		moment := time.Millisecond << i * 4 / 5
		<-time.After(moment)
		s.must(node.KillKubelet(s.ctx))
		limit, err := s.podLimit(pod)
		s.t.Logf("killed after %v: fenced %t, %v", moment, err == nil && fence.IsFence(limit), err)
		s.must(node.StartKubelet(s.ctx, littleHeadroom))
		s.evictionEnds(pod)
	}
}

// fencesAndStock replaces our kubelet by stock's while a pod is fenced, ten times after an orderly stop and once after
// SIGKILL.
func (s *space) fencesAndStock() {
	s.must(builder.Build(s.ctx, []build.Part{build.StockKubelet()}))
	own, stock := node.Kubelet(), node.Layout().Program(build.StockKubelet().Name)
	s.t.Cleanup(func() { node.SetKubelet(own) })
	for i := range 10 {
		pod := s.fencedHog(fmt.Sprintf("swapped-%d", i))
		s.must(node.StopKubelet(s.ctx))
		s.must(s.noFence())
		node.SetKubelet(stock)
		s.must(node.StartKubelet(s.ctx, littleHeadroom))
		s.must(s.noFence())
		s.must(node.StopKubelet(s.ctx))
		node.SetKubelet(own)
		s.must(node.StartKubelet(s.ctx, littleHeadroom))
		s.must(s.noFence())
		s.remove(pod)
		s.noPressure()
	}
	pod := s.leftUnderFence()
	node.SetKubelet(stock)
	// With the same threshold, stock would evict the pod too, or reject it at its start.
	s.must(node.StartKubelet(s.ctx, func(config *kubeletv1beta1.KubeletConfiguration) {
		littleHeadroom(config)
		config.EvictionHard["memory.available"] = "10Mi"
	}))
	s.stays(takeover, func() error {
		limit, err := s.podLimit(pod)
		if err == nil && !fence.IsFence(limit) {
			err = fmt.Errorf("stock has set the limit %d, which docs/operations.md says it does not", limit)
		}
		return err
	})
	if now := s.get(pod.Name); now.Status.Phase != v1.PodRunning {
		s.t.Errorf("the pod under the fence: %s", kit.Describe(now))
	}
	s.must(s.removeFence(pod))
	s.must(s.noFence())
	s.must(node.StopKubelet(s.ctx))
	node.SetKubelet(own)
	s.must(node.StartKubelet(s.ctx, littleHeadroom))
	s.evictionEnds(pod)
}

// leftUnderFence kills the kubelet while a pod is fenced, and returns the pod. On a slow node with cgroup v2, where the
// kernel counts some MiB more for a pod, it may still grow then and hit its fence: then there is another try.
func (s *space) leftUnderFence() *v1.Pod {
	s.t.Helper()
	for i := range 5 {
		pod := s.fencedHog(fmt.Sprintf("left-%d", i))
		s.must(node.KillKubelet(s.ctx))
		if s.outlivesItsGrowth(pod) {
			return pod
		}
		s.must(node.StartKubelet(s.ctx, littleHeadroom))
		s.evictionEnds(pod)
	}
	s.t.Fatal("each pod has hit its fence")
	return nil
}

// outlivesItsGrowth waits until a hog has reached its limit or has ended, and reports whether its container still runs.
func (s *space) outlivesItsGrowth(pod *v1.Pod) (alive bool) {
	s.t.Helper()
	var limit int64
	for _, arg := range pod.Spec.Containers[0].Args {
		if text, found := strings.CutPrefix(arg, "--limit="); found {
			number, err := strconv.ParseInt(text, 10, 64)
			s.must(err)
			limit = number * mebibyte
		}
	}
	s.eventually(podTimeout, func(context.Context) error {
		pid, err := node.ContainerPID(s.ctx, s.get(pod.Name).Status.ContainerStatuses[0].ContainerID)
		if alive = err == nil && pid > 0 && syscall.Kill(pid, 0) == nil; !alive {
			return nil
		}
		dir, memory, err := s.memoryCgroup(pod)
		if err != nil {
			return err
		}
		now, err := kit.ReadCgroupNumber(dir, memory.Usage)
		if err == nil && now < limit {
			err = fmt.Errorf("the pod uses %d bytes, and grows to %d", now, limit)
		}
		return err
	})
	return alive
}

// removeFence removes the fence of a pod as docs/operations.md says: on v1, first that of memory and swap together.
func (s *space) removeFence(pod *v1.Pod) error {
	dir, memory, err := s.memoryCgroup(pod)
	if err != nil {
		return err
	}
	for _, name := range []string{"memory.memsw.limit_in_bytes", "memory.swap.max", memory.Limit} {
		// Opening a file creates none: where swap is not accounted, there is no such file.
		file, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) && name != memory.Limit {
			continue
		}
		if err != nil {
			return err
		}
		_, err = file.WriteString(memory.Unlimited)
		if err := errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// noFence checks that no pod's cgroup has a fence.
func (s *space) noFence() error {
	memory, err := kit.FindCgroupMemory(node.PodsCgroup())
	if err != nil {
		return err
	}
	cgroups, err := node.PodCgroups()
	for uid, dirs := range cgroups {
		for _, dir := range dirs {
			limit, found := kit.ReadCgroupNumber(dir, memory.Limit)
			if found == nil && fence.IsFence(limit) {
				err = errors.Join(err, fmt.Errorf("pod %s has a fence at %d", uid, limit))
			}
		}
	}
	return err
}

// fencedHog starts a pod that ignores SIGTERM and is evicted, and returns when it has a fence.
func (s *space) fencedHog(name string) *v1.Pod {
	s.t.Helper()
	pod, grow := s.restingHog(name, fencedExcess, v1.ResourceRequirements{})
	grow()
	deadline := time.Now().Add(fenceTime)
	for time.Now().Before(deadline) {
		limit, err := s.podLimit(pod)
		// The record of the termination is written beside the fence. A kubelet that is killed in the milliseconds between
		// them leaves a fence that the next one lifts, as one whose eviction it does not know of.
		if _, missing := os.Stat(terminationFile(pod)); missing == nil && err == nil && fence.IsFence(limit) {
			return pod
		}
		<-time.After(time.Millisecond)
	}
	s.t.Fatalf("no fence: %s", kit.Describe(s.get(name)))
	return nil
}

// restingHog starts a pod that ignores SIGTERM. It uses less than the threshold leaves until grow is called, and then
// grows until it exceeds the threshold by excess MiB.
func (s *space) restingHog(name string, excess int64, resources v1.ResourceRequirements) (pod *v1.Pod, grow func()) {
	s.t.Helper()
	memory, err := kit.FindCgroupMemory(node.PodsCgroup())
	s.must(err)
	var available int64
	s.eventually(podTimeout, func(context.Context) error {
		before := available
		available, err = memory.Available()
		if err == nil && max(available-before, before-available) > mebibyte/4 {
			err = fmt.Errorf("memory of earlier pods is still being freed: %d bytes are available, were %d", available, before)
		}
		return err
	})
	start := available/mebibyte - fencedHeadroom - fencedRest
	limit := start + fencedRest + excess
	pod = kit.HogPod(name, fmt.Sprintf("--start=%d", start), "--rate=400",
		fmt.Sprintf("--limit=%d", limit-limit/pagesPerTable), "--step=1ms", "--deaf", "--signal")
	pod.Spec.Containers[0].Resources = resources
	pod = s.ready(kit.Bound(pod))
	s.eventually(podTimeout, func(context.Context) error {
		dir, memory, err := s.memoryCgroup(pod)
		if err != nil {
			return err
		}
		now, err := kit.ReadCgroupNumber(dir, memory.Usage)
		if err == nil && now < start*mebibyte {
			err = fmt.Errorf("the hog uses %d MiB of %d", now/mebibyte, start)
		}
		return err
	})
	pid, err := node.ContainerPID(s.ctx, s.get(name).Status.ContainerStatuses[0].ContainerID)
	s.must(err)
	return pod, func() { s.must(syscall.Kill(pid, syscall.SIGUSR1)) }
}

// fenceIsLifted sets a limit on the cgroup of a running pod that an earlier run may have left.
func (s *space) fenceIsLifted(pod *v1.Pod) {
	want, err := s.podLimit(pod)
	s.must(err)
	s.must(node.KillKubelet(s.ctx))
	left := int64(0)
	for page := int64(os.Getpagesize()); left < want-mebibyte; left += page {
		if fence.IsFence(left) && left > want/2 {
			break
		}
	}
	dir, memory, err := s.memoryCgroup(pod)
	s.must(err)
	s.must(os.WriteFile(filepath.Join(dir, memory.Limit), []byte(strconv.FormatInt(left, 10)), 0))
	s.must(node.StartKubelet(s.ctx, littleHeadroom))
	s.eventually(podTimeout, func(context.Context) error {
		limit, err := s.podLimit(pod)
		if err == nil && limit != want {
			err = fmt.Errorf("the limit is %d, want %d", limit, want)
		}
		return err
	})
	limits := s.get(pod.Name).Status.ContainerStatuses[0].Resources.Limits
	s.expect("limit in the status", limits.Memory().String(), "256Mi")
}

// podLimit returns the limit of memory of the pod's cgroup.
func (s *space) podLimit(pod *v1.Pod) (int64, error) {
	dir, memory, err := s.memoryCgroup(pod)
	if err != nil {
		return 0, err
	}
	return kit.ReadCgroupNumber(dir, memory.Limit)
}

// memoryCgroup returns the directory of the pod's memory cgroup, and the names of its files.
func (s *space) memoryCgroup(pod *v1.Pod) (string, kit.CgroupMemory, error) {
	memory, err := kit.FindCgroupMemory(node.PodsCgroup())
	if err != nil {
		return "", memory, err
	}
	cgroups, err := node.PodCgroups()
	for _, dir := range cgroups[string(pod.UID)] {
		if strings.HasPrefix(dir, memory.Pods+"/") {
			return dir, memory, err
		}
	}
	return "", memory, errors.Join(err, fmt.Errorf("pod %s has no cgroup", pod.Name))
}
