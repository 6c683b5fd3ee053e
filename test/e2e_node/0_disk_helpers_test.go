//go:build e2e

package e2enode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// imageDisk is the size of the disk of images and writable layers, diskThreshold what must be available there.
	imageDisk     = 1024 * mebibyte
	diskThreshold = 300 * mebibyte
	// nodeDisk and nodeThreshold are the same for the disk of volumes. It is small beside what a writable layer holds, so
	// that the pod that fills it is not the one that uses most on both disks together.
	nodeDisk      = 320 * mebibyte
	nodeThreshold = 100 * mebibyte
	// fillerSize is the content of an image that fills a disk. Containerd keeps it twice, packed and unpacked.
	fillerSize = 40 * mebibyte
	// diskSlack is how much more than an empty disk may be in use when a test begins.
	diskSlack = 12 * mebibyte
)

// emptyDisks is how many bytes were available on the disks of images and of volumes when the cluster was started.
var emptyDisks [2]int64

// withSmallDisks returns the configuration of a cluster with a small disk for images and another one for the kubelet.
func withSmallDisks(config cluster.Config) cluster.Config {
	config.ImageDisk, config.NodeDisk = imageDisk, nodeDisk
	config.Tune = cluster.Tuned(config.Tune, func(config *kubeletv1beta1.KubeletConfiguration) {
		config.EvictionHard["nodefs.available"] = fmt.Sprintf("%dMi", nodeThreshold/mebibyte)
		config.EvictionHard["imagefs.available"] = fmt.Sprintf("%dMi", diskThreshold/mebibyte)
		config.ImageMinimumGCAge = metav1.Duration{Duration: time.Second}
		config.VolumeStatsAggPeriod = metav1.Duration{Duration: time.Second}
	})
	return config
}

// spaceOnSmallDisks is a space on the cluster with small disks. They are as empty as when the cluster was started.
func spaceOnSmallDisks(t *testing.T) *space {
	t.Helper()
	useCluster(t, smallDisks)
	useFirstKubelet(t)
	s := newNamespace(t)
	if emptyDisks == [2]int64{} {
		emptyDisks = [2]int64{s.availableToImages(), s.availableToVolumes()}
	}
	for _, name := range s.listFillers() {
		s.ctr("images", "remove", filler(name))
	}
	s.eventually(podTimeout, func(ctx context.Context) error {
		if now := [2]int64{s.availableToImages(), s.availableToVolumes()}; now[0] < emptyDisks[0]-diskSlack ||
			now[1] < emptyDisks[1]-diskSlack {
			return fmt.Errorf("%v bytes are available to images and volumes, at the start of the cluster %v", now, emptyDisks)
		}
		return kit.DiskPressure(ctx, s.client, false)
	})
	return s
}

// noDisks is nil once no loop device holds a file of the cluster any more. The cluster has ended.
func noDisks(layout cluster.Layout) error {
	return kit.Poll(context.Background(), time.Minute, func(context.Context) error {
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

func filler(name string) string { return "localhost/filler-" + name + ":1" }

// importFiller imports an image with a shell and much content, which may be removed.
func (s *space) importFiller(name string) {
	s.t.Helper()
	images, err := builder.Images()
	s.must(err)
	image := images[slices.IndexFunc(images, func(i build.Image) bool { return i.Name == build.ImageBusybox })]
	image.Name = filler(name)
	image.Content = map[string]string{"/content": name + strings.Repeat("plimsoll", fillerSize/8)}
	files, err := build.WriteImages(s.t.TempDir(), []build.Image{image})
	s.must(err)
	s.ctr("images", "import", "--local", files[0])
}

// fillers fails the test unless exactly these are there.
func (s *space) fillers(want ...string) {
	s.t.Helper()
	s.expect("what is left of the images", fmt.Sprint(s.listFillers()), fmt.Sprint(want))
}

// listFillers are the names of those that are there, in alphabetical order.
func (s *space) listFillers() (names []string) {
	s.t.Helper()
	for _, line := range strings.Fields(s.ctr("images", "list", "--quiet")) {
		if name, ok := strings.CutPrefix(line, "localhost/filler-"); ok {
			names = append(names, strings.TrimSuffix(name, ":1"))
		}
	}
	slices.Sort(names)
	return names
}

func (s *space) ctr(args ...string) string {
	s.t.Helper()
	layout := node.Layout()
	args = append([]string{"--address", layout.Socket(), "--namespace", "k8s.io"}, args...)
	out, err := exec.CommandContext(s.ctx, layout.Program("ctr"), args...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("ctr %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// listed is nil if the Node's status has the image.
func (s *space) listed(ctx context.Context, name string) error {
	node, err := kit.Node(ctx, s.client)
	if err != nil {
		return err
	}
	for _, image := range node.Status.Images {
		if slices.Contains(image.Names, name) {
			return nil
		}
	}
	return fmt.Errorf("the node does not list %s", name)
}

// availableToImages are the bytes available on the disk of images and writable layers.
func (s *space) availableToImages() int64 {
	s.t.Helper()
	return s.availableOn(node.Layout().ContainerdRoot())
}

// availableToVolumes are the bytes available on the disk of volumes.
func (s *space) availableToVolumes() int64 {
	s.t.Helper()
	return s.availableOn(node.Layout().KubeletRoot())
}

func (s *space) availableOn(dir string) int64 {
	s.t.Helper()
	var st unix.Statfs_t
	s.must(unix.Statfs(dir, &st))
	return int64(st.Bavail) * st.Bsize
}

// atLeast is nil if that many bytes are available. What names the disk.
func atLeast(what string, available, want int64) error {
	if available < want {
		return fmt.Errorf("%d MiB are available to %s, want %d", available/mebibyte, what, want/mebibyte)
	}
	return nil
}

// fill makes a file of that many bytes in dir. It is removed when the test ends.
func (s *space) fill(dir string, bytes int64) (path string) {
	s.t.Helper()
	path = filepath.Join(dir, "ballast")
	file, err := os.Create(path)
	s.must(err)
	s.t.Cleanup(func() { _ = os.Remove(path) })
	s.must(errors.Join(unix.Fallocate(int(file.Fd()), 0, 0, bytes), file.Close()))
	return path
}
