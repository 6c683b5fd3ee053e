//go:build e2e

package e2enode

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// TestFullImageDisk fills a small file system of images and writable layers. Images that no container uses are removed
// first, the least recently used one and no more than it takes, then the pod that fills the disk is evicted.
// DiskPressure is True all the time until that is over.
func TestFullImageDisk(t *testing.T) {
	s := spaceOnSmallDisks(t)
	// One was in use when the kubelet looked, one was there and was not, the last came later.
	s.importFiller("used")
	user := kit.IdlePod("user")
	user.Spec.Containers[0].Image = filler("used")
	user = s.ready(user)
	s.importFiller("first")
	s.withPressureConfig(pressureHeader, nil)
	s.importFiller("second")
	s.eventually(time.Minute, func(ctx context.Context) error { return s.listed(ctx, filler("second")) })
	s.remove(user)
	s.fillers("first", "second", "used")
	bystander := s.ready(kit.IdlePodThat("bystander", "dd if=/dev/zero of=/tmp/some bs=1M count=10 2>/dev/null"))
	before := s.fingerprint()

	s.fill(node.Layout().ContainerdRoot(), s.availableToImages()-diskThreshold+20*mebibyte)
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	s.eventually(time.Minute, func(context.Context) error { return s.roomForImages() })
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })
	s.fillers("second", "used")
	s.must(s.sameAs(before))

	// The pod that fills the disk takes longer than the usual transition period to use up what was reclaimed: an image
	// holds 80 MiB, and the kubelet looks at the disk every 2 s.
	s.restartKubelet(transitionPeriod(20 * time.Second))
	writer := s.create(kit.IdlePodThat("writer",
		"i=0; while [ $i -lt 50 ]; do i=$((i+1)); dd if=/dev/zero of=/tmp/$i bs=1M count=16 2>/dev/null; sleep 1; done"))
	s.eventually(2*time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	watch := s.watch(func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	evicted := s.wait(writer, slowTimeout, endedFor("Evicted"))
	if lost := watch(); lost != nil {
		t.Errorf("the condition or the taint was removed too early: %v", lost)
	}
	want := "The node was low on resource: ephemeral-storage. Threshold quantity: 300Mi"
	if !strings.HasPrefix(evicted.Status.Message, want) {
		t.Errorf("message is %q, want %q first", evicted.Status.Message, want)
	}
	s.fillers()
	s.must(s.sameAs(before))
	// The next kubelet takes the condition over, and ends it after the usual transition period.
	s.restartKubelet(nil)
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })
	s.must(s.roomForImages())
	s.wait(bystander, podTimeout, kit.Ready)
}

// roomForImages is nil if the threshold of the disk of images is not met.
func (s *space) roomForImages() error {
	s.t.Helper()
	return atLeast("images", s.availableToImages(), diskThreshold)
}
