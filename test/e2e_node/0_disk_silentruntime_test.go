//go:build e2e

package e2enode

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestDiskPressureIsSeenWhileTheRuntimeHangs fills the node's disk while containerd does not answer. DiskPressure
// becomes True all the same, an event reports that the runtime is silent, and no pod is evicted: what each uses on the
// disk is not known. DiskPressure becomes False when containerd answers again how full the disk of images is.
func TestDiskPressureIsSeenWhileTheRuntimeHangs(t *testing.T) {
	s := spaceOnSmallDisks(t)
	s.ready(kit.IdlePodThat("neighbour", ""))
	before, begin := s.fingerprint(), time.Now()
	containerd, err := node.ContainerdPID()
	s.must(err)
	resume := s.halt(containerd)

	ballast := s.fill(node.Layout().KubeletRoot(), s.availableToVolumes()-nodeThreshold/2)
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	s.eventually(time.Minute, func(ctx context.Context) error {
		return s.nodeEvent(ctx, begin, "EvictionRuntimeSilent", "no pod is evicted for file systems")
	})
	s.must(os.Remove(ballast))
	resume()
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })
	s.ready(kit.IdlePodThat("newcomer", ""))
	s.must(s.sameAs(before))
}
