//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubetypes "k8s.io/kubelet/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// revisionLabel is the label with the number of the manifest.
const revisionLabel = "revision"

// replacements is how often a manifest is replaced, and replacePause the time in between. All of it takes less than the
// grace period of the first pod.
const (
	replacements = 10
	replacePause = 300 * time.Millisecond
)

// stubbornStatic is a static pod that ignores SIGTERM.
func stubbornStatic(name string, revision int) *v1.Pod {
	pod := podThat(name, neverEnds, 5)
	pod.Labels = map[string]string{revisionLabel: strconv.Itoa(revision)}
	return pod
}

// lastOneRuns is nil if the static pod of that revision is the only one of its name that runs, and its mirror pod is up
// to date.
func (s *space) lastOneRuns(ctx context.Context, name string, revision int) error {
	sandboxes, containers, err := s.runningOf(ctx, mirrorName(name))
	if err != nil {
		return err
	}
	if len(sandboxes) != 1 || len(containers) != 1 {
		return fmt.Errorf("%d sandboxes and %d containers run, want one of each", len(sandboxes), len(containers))
	}
	want := strconv.Itoa(revision)
	if got := sandboxes[0].Labels[revisionLabel]; got != want {
		return fmt.Errorf("revision %s runs, want %s", got, want)
	}
	mirror, err := s.client.CoreV1().Pods(s.name).Get(ctx, mirrorName(name), metav1.GetOptions{})
	if err != nil {
		return err
	}
	uid := sandboxes[0].Labels[kubetypes.KubernetesPodUIDLabel]
	if got := mirror.Annotations[v1.MirrorPodAnnotationKey]; mirror.Labels[revisionLabel] != want || got != uid {
		return fmt.Errorf("the mirror pod shows revision %s of %s, want %s of %s",
			mirror.Labels[revisionLabel], got, want, uid)
	}
	id, statuses := "containerd://"+containers[0].Id, mirror.Status.ContainerStatuses
	if len(statuses) != 1 || statuses[0].ContainerID != id {
		return fmt.Errorf("the mirror pod does not show container %s: %s", id, kit.Describe(mirror))
	}
	return plain(kit.Ready(mirror))
}

// runningOf returns the running sandboxes and containers of all pods called name, from the runtime.
func (s *space) runningOf(
	ctx context.Context, name string,
) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, error) {
	runtime, err := node.Runtime(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer runtime.Close(ctx)
	labels := map[string]string{kubetypes.KubernetesPodNamespaceLabel: s.name, kubetypes.KubernetesPodNameLabel: name}
	sandboxes, err := runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		LabelSelector: labels, State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	})
	if err != nil {
		return nil, nil, err
	}
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{
		LabelSelector: labels, State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	})
	return sandboxes, containers, err
}

// alone checks, until the function that it returns is called, that no two pods of that name run at the same time. That
// function returns the first violation.
func (s *space) alone(name string) func() error {
	ctx, cancel := context.WithCancel(s.ctx)
	wrong := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(observeInterval)
		defer ticker.Stop()
		var first error
		for ctx.Err() == nil {
			sandboxes, containers, err := s.runningOf(ctx, mirrorName(name))
			if err == nil && first == nil && (len(sandboxes) > 1 || len(containers) > 1) {
				first = fmt.Errorf("%d sandboxes and %d containers of %s ran at once", len(sandboxes), len(containers), name)
			}
			<-ticker.C
		}
		wrong <- first
	}()
	return func() error {
		cancel()
		return <-wrong
	}
}

// TestStaticPodReplacedAgainAndAgain replaces a manifest faster than pods stop. The pod of the last one runs
// (kubernetes issue 109596).
func TestStaticPodReplacedAgainAndAgain(t *testing.T) {
	s := parallelSpace(t)
	s.must(s.placeManifest(stubbornStatic("static", 0)))
	s.eventually(podTimeout, func(ctx context.Context) error { return s.lastOneRuns(ctx, "static", 0) })
	alone := s.alone("static")
	for i := range replacements {
		s.must(s.placeManifest(stubbornStatic("static", i+1)))
		pause(s.ctx, replacePause)
	}
	s.eventually(podTimeout, func(ctx context.Context) error { return s.lastOneRuns(ctx, "static", replacements) })
	s.must(alone())
}

// TestStaticPodDeletedAndRecreated removes a manifest and writes one of the same name, changed or not, faster than its
// pod stops (kubernetes issue 134908).
func TestStaticPodDeletedAndRecreated(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// revision of the manifest that is written at the i-th time.
		revision func(i int) int
	}{
		{"same", func(int) int { return 0 }},
		{"changed", func(i int) int { return i + 1 }},
		{"alternating", func(i int) int { return (i + 1) % 2 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := parallelSpace(t)
			s.must(s.placeManifest(stubbornStatic("static", 0)))
			s.eventually(podTimeout, func(ctx context.Context) error { return s.lastOneRuns(ctx, "static", 0) })
			alone := s.alone("static")
			for i := range replacements {
				s.must(os.Remove(s.manifestFile("static")))
				pause(s.ctx, replacePause)
				s.must(s.placeManifest(stubbornStatic("static", test.revision(i))))
				pause(s.ctx, replacePause)
			}
			last := test.revision(replacements - 1)
			s.eventually(podTimeout, func(ctx context.Context) error { return s.lastOneRuns(ctx, "static", last) })
			s.must(alone())
		})
	}
}

// TestRemovedStaticPodStaysAway ends with the removal of the manifest.
func TestRemovedStaticPodStaysAway(t *testing.T) {
	s := parallelSpace(t)
	for i := range replacements {
		s.must(s.placeManifest(stubbornStatic("static", i)))
		pause(s.ctx, replacePause)
		s.must(os.Remove(s.manifestFile("static")))
		pause(s.ctx, replacePause)
	}
	nothing := func() error {
		sandboxes, containers, err := s.runningOf(s.ctx, mirrorName("static"))
		if err == nil && len(sandboxes)+len(containers) > 0 {
			err = fmt.Errorf("%d sandboxes and %d containers run", len(sandboxes), len(containers))
		}
		return err
	}
	mirror := &v1.Pod{}
	mirror.Namespace, mirror.Name = s.name, mirrorName("static")
	s.must(kit.WaitGone(s.ctx, s.client, mirror, podTimeout))
	// Containers may still be started after the mirror pod is gone, as long as a pod worker has work to do.
	s.eventually(podTimeout, func(ctx context.Context) error {
		return errors.Join(s.noWorker(ctx, mirrorName("static")), nothing())
	})
	s.stays(10*time.Second, nothing)
}

// noWorker is nil if all pod workers of pods called name have finished.
func (s *space) noWorker(ctx context.Context, name string) error {
	list, err := workers(ctx)
	if err != nil {
		return err
	}
	for _, texts := range list {
		for _, text := range texts {
			if strings.HasPrefix(text, s.name+"/"+name+" ") && !strings.HasPrefix(text, s.name+"/"+name+" Finished") {
				return fmt.Errorf("a pod worker has not finished: %s", text)
			}
		}
	}
	return nil
}

// TestStaticPodReplacedAroundACrash kills the kubelet while the first pod stops and the next ones wait for that.
func TestStaticPodReplacedAroundACrash(t *testing.T) {
	s := newSpace(t)
	s.must(s.placeManifest(stubbornStatic("static", 0)))
	s.eventually(podTimeout, func(ctx context.Context) error { return s.lastOneRuns(ctx, "static", 0) })
	alone := s.alone("static")
	for i := range replacements {
		if i%3 == 1 {
			s.must(node.KillKubelet(s.ctx))
			s.must(os.Remove(s.manifestFile("static")))
			s.must(node.ReviveKubelet())
		}
		s.must(s.placeManifest(stubbornStatic("static", i+1)))
		pause(s.ctx, time.Duration(i)*replacePause)
	}
	s.eventually(podTimeout, func(ctx context.Context) error { return s.lastOneRuns(ctx, "static", replacements) })
	s.must(alone())
}
