package eviction

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
)

// broken is a node whose summary fails because of one of its parts.
type broken struct {
	*node
	images, pods, root bool
	processes          int64
}

var errBroken = errors.New("broken")

func (b *broken) ask(fails bool) (*statsapi.Summary, error) {
	if fails {
		return nil, errBroken
	}
	return b.node.Get(context.Background(), false)
}

func (b *broken) Get(context.Context, bool) (*statsapi.Summary, error) { return nil, errBroken }

func (b *broken) RootFsStats() (*statsapi.FsStats, error) {
	s, err := b.ask(b.root)
	if err != nil {
		return nil, err
	}
	return s.Node.Fs, nil
}

func (b *broken) ImageFsStats(context.Context) (images, containers *statsapi.FsStats, err error) {
	s, err := b.ask(b.images)
	if err != nil {
		return nil, nil, err
	}
	return s.Node.Runtime.ImageFs, s.Node.Runtime.ContainerFs, nil
}

func (b *broken) RlimitStats() (*statsapi.RlimitStats, error) {
	most := int64(1000)
	return &statsapi.RlimitStats{MaxPID: &most, NumOfRunningProcesses: &b.processes}, nil
}

func (b *broken) ListPodStats(context.Context) ([]statsapi.PodStats, error) {
	s, err := b.ask(b.pods)
	if err != nil {
		return nil, err
	}
	return s.Pods, nil
}

// TestD10EveryPartOnItsOwn: one part of the summary fails, so that there is none; what the others say still counts.
func TestD10EveryPartOnItsOwn(t *testing.T) {
	for name, test := range map[string]struct {
		broken broken
		kills  []string
		disk   bool
	}{
		"the file system of images": {broken{images: true}, []string{"writer/1"}, true},
		// The file system of containers is the same one, and is reported with that of images.
		"the node's file system": {broken{root: true}, []string{"writer/1"}, true},
		"both":                   {broken{root: true, images: true}, []string{}, false},
		// It is unknown which pod uses the disk.
		"stats of pods": {broken{pods: true}, []string{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode()
				n.add("other", gi)
				n.add("writer", gi).disk = 30 * gi
				n.available(20 * gi)
				n.full(5 * gi)
				b := test.broken
				b.node, b.processes = n, 990
				c := n.config(t, settings.ThresholdConfig{
					Hard: map[string]string{"nodefs.available": "10Gi"},
					Soft: map[string]string{"pid.available": "100"}, SoftGracePeriods: map[string]string{"pid.available": "1h"},
				})
				c.Collector = collectorOf(t, collect.Sources{Summary: &b, DiskInfo: n, Parts: &b})
				c.Memory = &kernel{node: n}
				run(t, n, c, func(m *Manager, wait func(time.Duration)) {
					wait(25 * time.Second)
					expect(t, "PID pressure", m.IsUnderPIDPressure(), true)
					expect(t, "disk pressure", m.IsUnderDiskPressure(), test.disk)
					expect(t, "kills", n.killed(), test.kills)
				})
			})
		})
	}
}

func TestWhatFailedIsNamed(t *testing.T) {
	n := newNode()
	n.images = &diskState{capacity: gi}
	b := &broken{node: n, images: true}
	signals := collectorOf(t, collect.Sources{Summary: b, DiskInfo: n, Parts: b}).Collect(t.Context()).Signals
	if o := signals[snapshot.NodeFsAvailable]; !o.Known() {
		t.Errorf("node file system: %+v", o)
	}
	if o := signals[snapshot.ImageFsAvailable]; !errors.Is(o.Err, errBroken) {
		t.Errorf("file system of images: %+v", o)
	}
}
