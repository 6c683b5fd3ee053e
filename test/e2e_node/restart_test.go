//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// takeover is for how long a test observes the pods under a kubelet that has replaced another one. The kubelet
// synchronizes each pod at once; its slower loops, those of the pods' and the Node's status, run every 10 s.
const takeover = 12 * time.Second

// TestStockTakesOverAndGivesBack replaces the kubelet by the stock kubelet of the same release, and that by ours, while
// pods run.
func TestStockTakesOverAndGivesBack(t *testing.T) {
	s := newSpace(t)
	s.must(builder.Build(s.ctx, []build.Part{build.StockKubelet()}))
	s.writeManifest(kit.IdlePod("static"))
	s.mirror("static", kit.Ready)
	s.startMany(20)
	before := s.fingerprint()
	own := node.Kubelet()
	t.Cleanup(func() { node.SetKubelet(own) })
	for _, kubelet := range []string{node.Layout().Program(build.StockKubelet().Name), own} {
		s.must(node.StopKubelet(s.ctx))
		node.SetKubelet(kubelet)
		s.must(node.StartKubelet(s.ctx, nil))
		s.stays(inSoak(20*time.Second, takeover), func() error { return s.sameAs(before) })
	}
}

// TestContainerThatEndsWhileNoKubeletRuns has a container end after the kubelet was killed. The next kubelet reports
// it.
func TestContainerThatEndsWhileNoKubeletRuns(t *testing.T) {
	s := newSpace(t)
	dir := t.TempDir()
	short, pid := s.running(s.create(counted(dir, "short", "while ! [ -e /starts/now ]; do sleep 0.2; done")))
	s.must(node.KillKubelet(s.ctx))
	s.must(os.WriteFile(filepath.Join(dir, "now"), nil, 0o644))
	s.eventually(podTimeout, func(context.Context) error { return gone(pid) })
	s.must(node.StartKubelet(s.ctx, nil))
	s.wait(short, podTimeout, ended(v1.PodSucceeded))
}

// gone is nil once no process has that PID.
func gone(pid int) error {
	if err := syscall.Kill(pid, 0); err == nil {
		return fmt.Errorf("process %d still runs", pid)
	}
	return nil
}

// swapKubelets kills the kubelet and starts it again, then replaces it by the stock kubelet of the same release, and
// that by ours. It calls check under each, and no pod may be restarted.
func (s *space) swapKubelets(tune func(*kubeletv1beta1.KubeletConfiguration), check func()) {
	s.t.Helper()
	s.must(builder.Build(s.ctx, []build.Part{build.StockKubelet()}))
	before := s.fingerprint()
	own, stock := node.Kubelet(), node.Layout().Program(build.StockKubelet().Name)
	s.t.Cleanup(func() { node.SetKubelet(own) })
	for _, next := range []struct {
		kubelet string
		stop    func(context.Context) error
	}{
		{own, node.KillKubelet}, {stock, node.StopKubelet}, {own, node.StopKubelet},
	} {
		s.must(next.stop(s.ctx))
		node.SetKubelet(next.kubelet)
		s.must(node.StartKubelet(s.ctx, tune))
		check()
		s.must(s.sameAs(before))
	}
}

// crash kills the first process of the container called main, and waits until the container is restarted and Ready.
func (s *space) crash(pod *v1.Pod) *v1.Pod {
	s.t.Helper()
	status, err := container(s.get(pod.Name), "main")
	s.must(err)
	pid, err := node.ContainerPID(s.ctx, status.ContainerID)
	s.must(err)
	s.must(syscall.Kill(pid, syscall.SIGKILL))
	return s.wait(s.wait(pod, podTimeout, restarted(status.RestartCount+1)), podTimeout, kit.Ready)
}
