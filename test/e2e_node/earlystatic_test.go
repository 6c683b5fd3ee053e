//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestStaticPodMovedAwayAndBackWithoutTheAPIServer removes the manifest of a static pod and writes it again, as a
// restore of etcd does, while the API server is stopped. The kubelet was restarted meanwhile and has never reached the
// API server. The pod stops and is started again all the same: the API server may depend on it. Stock does not stop it
// before it has reached the API server.
func TestStaticPodMovedAwayAndBackWithoutTheAPIServer(t *testing.T) {
	s := newSpace(t)
	etcd := kit.IdlePod("etcd")
	etcd.Spec.HostNetwork, etcd.Spec.PriorityClassName = true, "system-node-critical"
	s.must(s.placeManifest(etcd))
	s.mirror("etcd", kit.Ready)

	t.Cleanup(func() {
		if err := node.ReviveAPIServer(context.Background()); err != nil {
			t.Error(err)
		}
	})
	s.must(node.StopAPIServer(s.ctx))
	s.must(node.KillKubelet(s.ctx))
	s.must(node.ReviveKubelet())
	// A kubelet that has restarted the container has read the manifest.
	s.restartContainerOf("etcd")

	s.must(os.Remove(s.manifestFile("etcd")))
	s.eventually(podTimeout, func(ctx context.Context) error { return s.runs(ctx, "etcd", 0) })
	s.must(s.placeManifest(etcd))
	s.eventually(podTimeout, func(ctx context.Context) error { return s.runs(ctx, "etcd", 1) })
}

// restartContainerOf kills the only container of a static pod, and waits until the kubelet has started another one.
func (s *space) restartContainerOf(static string) {
	s.t.Helper()
	s.must(s.runs(s.ctx, static, 1))
	_, before, err := s.runningOf(s.ctx, mirrorName(static))
	s.must(err)
	pid, err := node.ContainerPID(s.ctx, before[0].Id)
	s.must(err)
	s.must(syscall.Kill(pid, syscall.SIGKILL))
	s.eventually(podTimeout, func(ctx context.Context) error {
		_, now, err := s.runningOf(ctx, mirrorName(static))
		if err == nil && (len(now) != 1 || now[0].Id == before[0].Id) {
			err = fmt.Errorf("container %s of %s was killed, and no other one runs", before[0].Id, static)
		}
		return err
	})
}

// runs is nil if the runtime runs that many sandboxes, and as many containers, of the static pod.
func (s *space) runs(ctx context.Context, static string, count int) error {
	sandboxes, containers, err := s.runningOf(ctx, mirrorName(static))
	if err == nil && (len(sandboxes) != count || len(containers) != count) {
		err = fmt.Errorf("%d sandboxes and %d containers of %s run, want %d of each",
			len(sandboxes), len(containers), static, count)
	}
	return err
}
