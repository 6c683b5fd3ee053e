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
	imageDisk = 1024 * mebibyte
	// diskThreshold is what is to be available there, fillerSize the content of
	// an image that fills it. Containerd keeps that twice, packed and unpacked.
	diskThreshold = 300 * mebibyte
	fillerSize    = 40 * mebibyte
)

// TestFullImageDisk fills a small file system of images and writable layers.
// Images that nobody uses go first, the least recently used one and no more
// than it takes; then the pod that fills it. DiskPressure is True all the time
// until it is over.
func TestFullImageDisk(t *testing.T) {
	s := spaceWithImageDisk(t)
	// One was in use when the kubelet looked, one was there and was not, the
	// last came later.
	s.importFiller("used")
	user := kit.IdlePod("user")
	user.Spec.Containers[0].Image = filler("used")
	user = s.ready(user)
	s.importFiller("first")
	s.must(node.StopKubelet(s.ctx))
	s.must(node.StartKubelet(s.ctx, nil))
	s.importFiller("second")
	s.eventually(time.Minute, func(ctx context.Context) error { return s.listed(ctx, filler("second")) })
	s.remove(user)
	s.fillers("first", "second", "used")
	bystander := s.ready(kit.IdlePodThat("bystander", "dd if=/dev/zero of=/tmp/some bs=1M count=10 2>/dev/null"))
	before := s.fingerprint()

	ballast := filepath.Join(node.Layout().ContainerdRoot(), "ballast")
	s.must(fill(ballast, s.available()-diskThreshold+20*mebibyte))
	s.eventually(time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	s.eventually(time.Minute, func(context.Context) error { return s.atLeast(diskThreshold) })
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })
	s.fillers("second", "used")
	s.must(s.sameAs(before))

	writer := s.create(kit.IdlePodThat("writer",
		"i=0; while [ $i -lt 50 ]; do i=$((i+1)); dd if=/dev/zero of=/tmp/$i bs=1M count=16 2>/dev/null; sleep 1; done"))
	s.eventually(2*time.Minute, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	watch := s.watch(func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, true) })
	evicted := s.wait(writer, slowTimeout, endedFor("Evicted"))
	if lost := watch(); lost != nil {
		t.Errorf("the pressure was lifted before it was over: %v", lost)
	}
	if !strings.HasPrefix(evicted.Status.Message, "The node was low on resource: ephemeral-storage. Threshold quantity: 300Mi") {
		t.Errorf("message is %q", evicted.Status.Message)
	}
	s.fillers()
	s.must(s.sameAs(before))
	s.eventually(slowTimeout, func(ctx context.Context) error { return kit.DiskPressure(ctx, s.client, false) })
	s.must(s.atLeast(diskThreshold))
	s.wait(bystander, podTimeout, kit.Ready)
}

// spaceWithImageDisk is a space on a cluster with a small disk for images.
func spaceWithImageDisk(t *testing.T) *space {
	t.Helper()
	config := clusterConfig
	config.ImageDisk = imageDisk
	// The pod that fills the disk takes longer than the usual transition period to use up what was reclaimed.
	config.Tune = cluster.Tuned(config.Tune, transitionPeriod(30*time.Second), func(config *kubeletv1beta1.KubeletConfiguration) {
		config.EvictionHard["imagefs.available"] = fmt.Sprintf("%dMi", diskThreshold/mebibyte)
		config.ImageMinimumGCAge = metav1.Duration{Duration: time.Second}
	})
	return spaceOn(t, config)
}

// spaceOn replaces the cluster by one with another configuration, until the
// test ends.
func spaceOn(t *testing.T, config cluster.Config) *space {
	t.Helper()
	replace := func(ctx context.Context, config cluster.Config) (err error) {
		if err := node.Stop(ctx); err != nil {
			return err
		}
		next, err := cluster.Start(ctx, config)
		if err == nil {
			node = next
		}
		return err
	}
	t.Cleanup(func() {
		if err := errors.Join(replace(context.Background(), clusterConfig), noDisks(config.Layout)); err != nil {
			t.Error(err)
		}
	})
	if err := replace(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	return newSpace(t)
}

func filler(name string) string { return "localhost/filler-" + name + ":1" }

// importFiller brings an image with a shell and much content, which may be
// removed.
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

// fillers wants these to be there, and no others.
func (s *space) fillers(want ...string) {
	s.t.Helper()
	var names []string
	for _, line := range strings.Fields(s.ctr("images", "list", "--quiet")) {
		if name, ok := strings.CutPrefix(line, "localhost/filler-"); ok {
			names = append(names, strings.TrimSuffix(name, ":1"))
		}
	}
	slices.Sort(names)
	s.expect("what is left of the images", fmt.Sprint(names), fmt.Sprint(want))
}

func (s *space) ctr(args ...string) string {
	s.t.Helper()
	layout := node.Layout()
	out, err := exec.CommandContext(s.ctx, layout.Program("ctr"), append([]string{"--address", layout.Socket(), "--namespace", "k8s.io"}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("ctr %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// listed wants the node to say that it has the image.
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

// available bytes on the disk of the images.
func (s *space) available() int64 {
	s.t.Helper()
	return s.availableOn(node.Layout().ContainerdRoot())
}

func (s *space) availableOn(dir string) int64 {
	s.t.Helper()
	var st unix.Statfs_t
	s.must(unix.Statfs(dir, &st))
	return int64(st.Bavail) * st.Bsize
}

func (s *space) atLeast(want int64) error {
	if got := s.available(); got < want {
		return fmt.Errorf("%d MiB are available, want %d", got/mebibyte, want/mebibyte)
	}
	return nil
}

// fill makes a file of that many bytes.
func fill(path string, bytes int64) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fallocate(int(file.Fd()), 0, 0, bytes), file.Close())
}

// watch looks all the time at what should hold; the returned function ends that
// and says when it did not.
func (s *space) watch(holds func(context.Context) error) (stop func() error) {
	ctx, cancel := context.WithCancel(s.ctx)
	lost := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		var first error
		for ctx.Err() == nil {
			if err := holds(ctx); err != nil && ctx.Err() == nil && first == nil {
				first = err
			}
			<-ticker.C
		}
		lost <- first
	}()
	return func() error {
		cancel()
		return <-lost
	}
}
