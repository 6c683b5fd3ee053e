//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubetypes "k8s.io/kubelet/pkg/types"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// revisionLabel says which manifest a static pod is of.
const revisionLabel = "revision"

// replacements is how often a manifest is replaced, and replacePause what is
// between: all of it takes less than the grace period of the first pod.
const (
	replacements = 10
	replacePause = 300 * time.Millisecond
)

// stubbornStatic is a static pod that takes its whole grace period to stop.
func stubbornStatic(name string, revision int) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Labels = map[string]string{revisionLabel: strconv.Itoa(revision)}
	pod.Spec.Containers[0].Command = []string{"sh", "-c", "trap '' TERM; while true; do sleep 1; done"}
	return pod
}

// lastOneRuns is nil if the static pod of that revision is the only one of its
// name that runs, and its mirror pod shows it.
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
		return fmt.Errorf("the mirror pod shows revision %s of %s, want %s of %s", mirror.Labels[revisionLabel], got, want, uid)
	}
	if id := "containerd://" + containers[0].Id; len(mirror.Status.ContainerStatuses) != 1 || mirror.Status.ContainerStatuses[0].ContainerID != id {
		return fmt.Errorf("the mirror pod does not show container %s: %s", id, kit.Describe(mirror))
	}
	return plain(kit.Ready(mirror))
}

// runningOf asks the runtime what runs of the pod called name, whatever its
// UID.
func (s *space) runningOf(ctx context.Context, name string) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, error) {
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

// alone watches, until the function that it returns is called, that no two
// pods of that name run at the same time; the function returns what was wrong.
func (s *space) alone(name string) func() error {
	ctx, cancel := context.WithCancel(s.ctx)
	wrong := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(lookInterval)
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

// TestStaticPodReplacedAgainAndAgain is upstream #109596: of manifests that
// follow each other faster than pods stop, the last one wins.
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

// TestStaticPodDeletedAndRecreated is upstream #134908: a manifest goes and
// comes back under the same name, also as it was, faster than its pod stops.
func TestStaticPodDeletedAndRecreated(t *testing.T) {
	for _, test := range []struct {
		name string
		// revision of the manifest that comes back at the i-th time.
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

// TestRemovedStaticPodStaysAway ends with the manifest gone.
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
	s.eventually(podTimeout, func(context.Context) error { return nothing() })
	s.stays(10*time.Second, nothing)
}

// TestStaticPodReplacedAroundACrash kills the kubelet while the first pod stops
// and others wait for it.
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
