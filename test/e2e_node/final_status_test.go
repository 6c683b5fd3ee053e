//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// counted is a pod with restart policy Never whose container appends a line to a file in dir and then runs script.
func counted(dir, name, script string) *v1.Pod {
	pod := kit.Pod(name, fmt.Sprintf("echo started >> /starts/%s; %s", name, script))
	mount(pod, v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}}, "/starts")
	return pod
}

// startedOnce fails the test if a container of the pods was started twice.
func (s *space) startedOnce(dir string, pods ...*v1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		data, err := os.ReadFile(filepath.Join(dir, pod.Name))
		s.must(err)
		if n := strings.Count(string(data), "started"); n != 1 {
			s.t.Errorf("the container of %s was started %d times, want once", pod.Name, n)
		}
	}
}

// running waits until the container called main runs, and returns its process.
func (s *space) running(pod *v1.Pod) (*v1.Pod, int) {
	s.t.Helper()
	got := s.wait(pod, podTimeout, kit.InPhase(v1.PodRunning))
	status, err := container(got, "main")
	s.must(err)
	pid, err := node.ContainerPID(s.ctx, status.ContainerID)
	s.must(err)
	return got, pid
}

// endedWith is a check for a pod in that phase with that exit code.
func endedWith(phase v1.PodPhase, code int32) func(*v1.Pod) error {
	return func(pod *v1.Pod) error {
		if err := kit.InPhase(phase)(pod); err != nil {
			return err
		}
		status, err := container(pod, "main")
		if err != nil {
			return kit.Hopeless(err)
		}
		ended := status.State.Terminated
		if ended == nil || ended.ExitCode != code || ended.StartedAt.IsZero() || ended.FinishedAt.IsZero() {
			return kit.Hopeless(fmt.Errorf("not ended with code %d: %s", code, kit.Describe(pod)))
		}
		return nil
	}
}

// TestFinalStatusSurvivesACrash has containers end while no kubelet runs. The next kubelet reports how they ended, and
// restarts none.
func TestFinalStatusSurvivesACrash(t *testing.T) {
	s := newSpace(t)
	dir := t.TempDir()
	const untilFileExists = "while ! [ -e /starts/now ]; do sleep 0.2; done; exit %d"
	good := s.create(counted(dir, "good", fmt.Sprintf(untilFileExists, 0)))
	bad := s.create(counted(dir, "bad", fmt.Sprintf(untilFileExists, 3)))
	stays := s.create(counted(dir, "stays", strings.TrimSpace(kit.Forever)))
	good, goodPID := s.running(good)
	bad, badPID := s.running(bad)
	stays, _ = s.running(stays)

	s.must(node.KillKubelet(s.ctx))
	s.must(os.WriteFile(filepath.Join(dir, "now"), nil, 0o644))
	for _, pid := range []int{goodPID, badPID} {
		s.eventually(podTimeout, func(context.Context) error { return gone(pid) })
	}
	s.must(node.StartKubelet(s.ctx, nil))
	s.wait(good, podTimeout, endedWith(v1.PodSucceeded, 0))
	s.wait(bad, podTimeout, endedWith(v1.PodFailed, 3))
	// After another crash the final status is the same.
	s.must(node.KillKubelet(s.ctx))
	s.must(node.StartKubelet(s.ctx, nil))
	s.stays(takeover, func() error {
		return errors.Join(endedWith(v1.PodSucceeded, 0)(s.get(good.Name)), endedWith(v1.PodFailed, 3)(s.get(bad.Name)),
			kit.Ready(s.get(stays.Name)))
	})
	s.startedOnce(dir, good, bad, stays)
}

// TestFinalStatusSurvivesACrashRightAfterTheEnd kills the kubelet shortly after the container has ended: before, while
// or after the kubelet reports that.
func TestFinalStatusSurvivesACrashRightAfterTheEnd(t *testing.T) {
	s := newSpace(t)
	dir := t.TempDir()
	for round := range 4 {
		trigger := fmt.Sprintf("now-%d", round)
		script := fmt.Sprintf("while ! [ -e /starts/%s ]; do sleep 0.1; done; exit 3", trigger)
		pod, pid := s.running(s.create(counted(dir, fmt.Sprintf("round-%d", round), script)))
		s.must(os.WriteFile(filepath.Join(dir, trigger), nil, 0o644))
		s.eventually(podTimeout, func(context.Context) error { return gone(pid) })
		pause(s.ctx, time.Duration(round)*400*time.Millisecond)
		s.must(node.KillKubelet(s.ctx))
		s.must(node.StartKubelet(s.ctx, nil))
		s.wait(pod, podTimeout, endedWith(v1.PodFailed, 3))
		s.startedOnce(dir, pod)
	}
}

// TestDeletedWhileNoKubeletRuns deletes pods while no kubelet runs. The next kubelet removes them, whether their
// container still runs or has ended.
func TestDeletedWhileNoKubeletRuns(t *testing.T) {
	s := newSpace(t)
	dir := t.TempDir()
	runs := s.create(counted(dir, "runs", strings.TrimSpace(kit.Forever)))
	ends := s.create(counted(dir, "ends", "while ! [ -e /starts/now ]; do sleep 0.2; done"))
	forced := s.create(counted(dir, "forced", strings.TrimSpace(kit.Forever)))
	var pids [3]int
	runs, pids[0] = s.running(runs)
	ends, pids[1] = s.running(ends)
	forced, pids[2] = s.running(forced)

	s.must(node.KillKubelet(s.ctx))
	pods := s.client.CoreV1().Pods(s.name)
	s.must(os.WriteFile(filepath.Join(dir, "now"), nil, 0o644))
	s.must(pods.Delete(s.ctx, runs.Name, metav1.DeleteOptions{}))
	s.must(pods.Delete(s.ctx, ends.Name, metav1.DeleteOptions{}))
	s.must(pods.Delete(s.ctx, forced.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
	s.must(node.StartKubelet(s.ctx, nil))
	for i, pod := range []*v1.Pod{runs, ends, forced} {
		s.must(kit.WaitGone(s.ctx, s.client, pod, podTimeout))
		s.eventually(podTimeout, func(context.Context) error { return gone(pids[i]) })
		folder := filepath.Join(node.Layout().KubeletRoot(), "pods", string(pod.UID))
		s.eventually(podTimeout, func(context.Context) error {
			if _, err := os.Stat(folder); err == nil {
				return fmt.Errorf("the directory of %s still exists", pod.Name)
			}
			return nil
		})
	}
	s.startedOnce(dir, runs, ends, forced)
}

// TestTerminationSurvivesACrash kills the kubelet while a pod terminates. The next kubelet completes the termination
// and does not start the container again.
func TestTerminationSurvivesACrash(t *testing.T) {
	s := newSpace(t)
	dir := t.TempDir()
	pod := counted(dir, "stubborn", neverEnds)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(10))
	created, pid := s.running(s.create(pod))
	s.must(s.client.CoreV1().Pods(s.name).Delete(s.ctx, created.Name, metav1.DeleteOptions{}))
	pause(s.ctx, 2*time.Second)
	s.must(node.KillKubelet(s.ctx))
	s.must(node.StartKubelet(s.ctx, nil))
	s.must(kit.WaitGone(s.ctx, s.client, created, podTimeout))
	s.must(gone(pid))
	s.startedOnce(dir, created)
}
