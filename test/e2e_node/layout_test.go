//go:build e2e

package e2enode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// nodeDisk is small beside what a writable layer holds in this test, so that
	// who fills it can be told from who uses most in sum.
	nodeDisk      = 320 * mebibyte
	nodeThreshold = 100 * mebibyte
	// layerSize is what a writable layer on the disk of images holds, keepSize
	// what lies in a volume on the node's disk.
	layerSize = 250 * mebibyte
	keepSize  = 30 * mebibyte
)

// TestEachDiskIsFreedOfWhoFillsIt has the kubelet's root directory and the
// images on two small disks. When volumes fill the one, the pod goes that keeps
// most there, and not the one that uses most in sum, in its writable layer;
// nothing is removed from the disk of images. When that runs full it is the
// other way round.
func TestEachDiskIsFreedOfWhoFillsIt(t *testing.T) {
	s := spaceWithTwoDisks(t)
	s.importFiller("unused")
	s.ready(kit.IdlePodThat("layer", writes("/tmp/layer", layerSize)))
	keeper := kit.IdlePodThat("keeper", writes("/data/kept", keepSize))
	mountEmptyDir(keeper, "/data")
	s.ready(keeper)
	s.eventually(time.Minute, func(context.Context) error { return s.used() })
	before, images := s.fingerprint(), s.available()

	// It writes for longer than figures of volumes may be old.
	writer := kit.IdlePodThat("writer",
		"i=0; while [ $i -lt 18 ]; do i=$((i+1)); dd if=/dev/zero of=/data/$i bs=1M count=12 2>/dev/null; sleep 1; done")
	mountEmptyDir(writer, "/data")
	evicted := s.wait(s.create(writer), slowTimeout, endedFor("Evicted"))
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	s.evictedForDisk(evicted, nodeThreshold)
	s.eventually(time.Minute, func(context.Context) error { return s.roomOnNodeDisk(nodeThreshold) })
	s.fillers("unused")
	s.must(s.sameAs(before))
	if left := s.available(); left < images-20*mebibyte {
		t.Errorf("%d MiB are available to images, %d before", left/mebibyte, images/mebibyte)
	}
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })

	// More than images can give back.
	volumes := s.availableOn(node.Layout().KubeletRoot())
	ballast := filepath.Join(node.Layout().ContainerdRoot(), "ballast")
	s.must(fill(ballast, s.available()-diskThreshold+200*mebibyte))
	layer := s.get("layer")
	s.evictedForDisk(s.wait(layer, slowTimeout, endedFor("Evicted")), diskThreshold)
	delete(before, "layer")
	s.must(s.sameAs(before))
	if left := s.availableOn(node.Layout().KubeletRoot()); left < volumes-20*mebibyte {
		t.Errorf("%d MiB are available to volumes, %d before", left/mebibyte, volumes/mebibyte)
	}
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })
	s.must(s.atLeast(diskThreshold))
}

// spaceWithTwoDisks is a space on a cluster with a small disk for images and
// another for the kubelet.
func spaceWithTwoDisks(t *testing.T) *space {
	t.Helper()
	config := clusterConfig
	config.ImageDisk, config.NodeDisk = imageDisk, nodeDisk
	config.Tune = cluster.Tuned(config.Tune, func(config *kubeletv1beta1.KubeletConfiguration) {
		config.EvictionHard["nodefs.available"] = fmt.Sprintf("%dMi", nodeThreshold/mebibyte)
		config.EvictionHard["imagefs.available"] = fmt.Sprintf("%dMi", diskThreshold/mebibyte)
		config.ImageMinimumGCAge = metav1.Duration{Duration: time.Second}
		config.VolumeStatsAggPeriod = metav1.Duration{Duration: time.Second}
	})
	return spaceOn(t, config)
}

// writes is a script that makes a file of so many bytes.
func writes(path string, bytes int64) string {
	return fmt.Sprintf("dd if=/dev/zero of=%s bs=1M count=%d 2>/dev/null; ", path, bytes/mebibyte)
}

// used wants what the first two pods write to be on their disks.
func (s *space) used() error {
	if left := s.available(); left > imageDisk-layerSize {
		return fmt.Errorf("%d MiB are available to images, want less", left/mebibyte)
	}
	if left := s.availableOn(node.Layout().KubeletRoot()); left > nodeDisk-keepSize {
		return fmt.Errorf("%d MiB are available to volumes, want less", left/mebibyte)
	}
	return nil
}

func (s *space) roomOnNodeDisk(want int64) error {
	if got := s.availableOn(node.Layout().KubeletRoot()); got < want {
		return fmt.Errorf("%d MiB are available to volumes, want %d", got/mebibyte, want/mebibyte)
	}
	return nil
}

func (s *space) evictedForDisk(pod *v1.Pod, threshold int64) {
	s.t.Helper()
	if want := fmt.Sprintf("The node was low on resource: ephemeral-storage. Threshold quantity: %dMi", threshold/mebibyte); !strings.HasPrefix(pod.Status.Message, want) {
		s.t.Errorf("message is %q, want %q first", pod.Status.Message, want)
	}
}

// noDisks wants no loop device to hold a file of the cluster any more, a moment
// after the cluster has ended.
func noDisks(layout cluster.Layout) error {
	return kit.Poll(context.Background(), 10*time.Second, func(context.Context) error {
		files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			return err
		}
		for _, file := range files {
			// A device that is freed meanwhile has no such file.
			if held, err := os.ReadFile(file); err == nil && strings.HasPrefix(string(held), layout.State) {
				return fmt.Errorf("%s still holds %s", file, held)
			}
		}
		return nil
	})
}
