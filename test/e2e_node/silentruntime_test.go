//go:build e2e

package e2enode

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestDiskPressureIsSeenWhileTheRuntimeHangs fills the node's disk while containerd answers nobody. The condition comes all the same, it
// is said that nobody can tell who fills the disk, and nobody is evicted for it. The condition goes when containerd tells again how
// full the disk of images is.
func TestDiskPressureIsSeenWhileTheRuntimeHangs(t *testing.T) {
	s := spaceWithTwoDisks(t)
	s.ready(kit.IdlePodThat("neighbour", ""))
	before, begin := s.fingerprint(), time.Now()
	containerd, err := node.ContainerdPID()
	s.must(err)
	goOn := s.halt(containerd)

	ballast := filepath.Join(node.Layout().KubeletRoot(), "ballast")
	s.must(fill(ballast, s.availableOn(node.Layout().KubeletRoot())-nodeThreshold/2))
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	s.eventually(time.Minute, func(ctx context.Context) error {
		return s.nodeEvent(ctx, begin, "EvictionRuntimeSilent", "nobody is evicted for file systems")
	})
	s.must(os.Remove(ballast))
	goOn()
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })
	s.ready(kit.IdlePodThat("newcomer", ""))
	s.must(s.sameAs(before))
}
