//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/test/kit"
)

// layerSize is what a writable layer on the disk of images holds, keepSize what a volume on the node's disk holds.
const (
	layerSize = 250 * mebibyte
	keepSize  = 30 * mebibyte
)

// TestEachDiskIsFreedOfWhoFillsIt has the kubelet's root directory and the images on two small disks. When volumes fill
// the first, the pod is evicted that keeps most there, and not the one that uses most on both, in its writable layer;
// nothing is removed from the disk of images. When that is full it is the other way round.
func TestEachDiskIsFreedOfWhoFillsIt(t *testing.T) {
	s := spaceOnSmallDisks(t)
	s.importFiller("unused")
	s.ready(kit.IdlePodThat("layer", writes("/tmp/layer", layerSize)))
	keeper := kit.IdlePodThat("keeper", writes("/data/kept", keepSize))
	mountEmptyDir(keeper, "/data")
	s.ready(keeper)
	s.eventually(time.Minute, func(context.Context) error { return s.bothWritten() })
	before, images := s.fingerprint(), s.availableToImages()

	// It writes for longer than statistics of volumes may be old.
	writer := kit.IdlePodThat("writer",
		"i=0; while [ $i -lt 18 ]; do i=$((i+1)); dd if=/dev/zero of=/data/$i bs=1M count=12 2>/dev/null; sleep 1; done")
	mountEmptyDir(writer, "/data")
	evicted := s.wait(s.create(writer), slowTimeout, endedFor("Evicted"))
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	s.evictedForDisk(evicted, nodeThreshold)
	s.eventually(time.Minute, func(context.Context) error {
		return atLeast("volumes", s.availableToVolumes(), nodeThreshold)
	})
	s.fillers("unused")
	s.must(s.sameAs(before))
	s.must(atLeast("images", s.availableToImages(), images-20*mebibyte))
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })

	// More than the removal of images can free.
	volumes := s.availableToVolumes()
	s.fill(node.Layout().ContainerdRoot(), s.availableToImages()-diskThreshold+200*mebibyte)
	layer := s.get("layer")
	s.evictedForDisk(s.wait(layer, slowTimeout, endedFor("Evicted")), diskThreshold)
	delete(before, "layer")
	s.must(s.sameAs(before))
	s.must(atLeast("volumes", s.availableToVolumes(), volumes-20*mebibyte))
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })
	s.must(s.roomForImages())
}

// writes is a script that makes a file of so many bytes.
func writes(path string, bytes int64) string {
	return fmt.Sprintf("dd if=/dev/zero of=%s bs=1M count=%d 2>/dev/null; ", path, bytes/mebibyte)
}

// bothWritten is nil if what the first two pods write is on their disks.
func (s *space) bothWritten() error {
	if left := s.availableToImages(); left > imageDisk-layerSize {
		return fmt.Errorf("%d MiB are available to images, want less", left/mebibyte)
	}
	if left := s.availableToVolumes(); left > nodeDisk-keepSize {
		return fmt.Errorf("%d MiB are available to volumes, want less", left/mebibyte)
	}
	return nil
}

func (s *space) evictedForDisk(pod *v1.Pod, threshold int64) {
	s.t.Helper()
	want := fmt.Sprintf("The node was low on resource: ephemeral-storage. Threshold quantity: %dMi", threshold/mebibyte)
	if !strings.HasPrefix(pod.Status.Message, want) {
		s.t.Errorf("message is %q, want %q first", pod.Status.Message, want)
	}
}
