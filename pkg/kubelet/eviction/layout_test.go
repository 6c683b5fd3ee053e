package eviction

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// disks are what a runtime and the kernel say about file systems.
type disks struct {
	dedicated, split       bool
	dedicatedErr, splitErr error
	asked                  int
}

func (d *disks) HasDedicatedImageFs(context.Context) (bool, error) {
	d.asked++
	return d.dedicated, d.dedicatedErr
}

func (d *disks) HasDedicatedContainerFs(context.Context) (bool, error) { return d.split, d.splitErr }

func TestLayoutFollowsTheDisks(t *testing.T) {
	oops := errors.New("oops")
	single, dedicated := snapshot.Layout{Known: true}, snapshot.Layout{Known: true, DedicatedImageFs: true}
	split := snapshot.Layout{Known: true, DedicatedImageFs: true, SplitContainerFs: true}
	type step struct {
		after time.Duration
		disks disks
		want  snapshot.Layout
	}
	for name, steps := range map[string][]step{
		"an image disk is attached": {
			{0, disks{}, single}, {50 * time.Second, disks{dedicated: true}, single},
			{20 * time.Second, disks{dedicated: true}, dedicated},
		},
		"and detached": {
			{0, disks{dedicated: true}, dedicated}, {time.Minute, disks{}, single},
		},
		"a runtime that tells nothing at first": {
			{0, disks{dedicatedErr: oops}, snapshot.Layout{}}, {time.Second, disks{dedicated: true}, dedicated},
		},
		"a runtime that fails later": {
			{0, disks{dedicated: true}, dedicated}, {time.Hour, disks{dedicatedErr: oops}, dedicated},
			{time.Second, disks{}, single},
		},
		"D12 a transient error when looking for a split file system": {
			{0, disks{dedicated: true, splitErr: oops}, dedicated},
			{10 * time.Second, disks{dedicated: true, split: true}, split},
		},
		"D12 the same later on": {
			{0, disks{dedicated: true, split: true}, split}, {time.Minute, disks{dedicated: true, splitErr: oops}, split},
			{time.Second, disks{dedicated: true, split: true}, split}, {time.Minute, disks{dedicated: true}, dedicated},
		},
		"split file systems are joined": {
			{0, disks{dedicated: true, split: true}, split}, {time.Minute, disks{split: true}, single},
		},
		"a clock that goes back": {
			{time.Hour, disks{}, single}, {-time.Minute, disks{dedicated: true}, dedicated},
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := &disks{}
			l := layouter{info: world, splitOK: true}
			now := time.Unix(1e9, 0)
			for i, s := range steps {
				now, *world = now.Add(s.after), s.disks
				if got := l.current(t.Context(), now); got != s.want {
					t.Errorf("step %d: %+v, want %+v", i, got, s.want)
				}
			}
		})
	}
}

// TestTheLayoutChangesWhileTheManagerRuns: an image disk is attached, and detached again. From the next look on pods
// are measured by what they keep on each disk, and the derived thresholds are those of the disk.
func TestTheLayoutChangesWhileTheManagerRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.add("layers", gi).disk = 30 * gi
		n.add("logs", gi).logs = 20 * gi
		n.add("more-layers", gi).disk = 20 * gi
		n.available(20 * gi)
		n.full(50 * gi)
		c := n.config(t, ThresholdConfig{Hard: map[string]string{"nodefs.available": "10Gi", "imagefs.available": "5Gi"}})
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Minute + 5*time.Second)
			n.mu.Lock()
			n.images = &diskState{capacity: 60 * gi, used: 50 * gi}
			n.mu.Unlock()
			wait(time.Minute + 5*time.Second)
			n.full(5 * gi)
			wait(25 * time.Second)
			expect(t, "who fills the node's disk", n.killed(), []string{"logs/1"})
			n.mu.Lock()
			n.images.used = 58 * gi
			n.mu.Unlock()
			wait(25 * time.Second)
			expect(t, "who fills the disk of images", n.killed(), []string{"logs/1", "layers/1"})
			n.mu.Lock()
			n.images = nil
			n.mu.Unlock()
			wait(time.Minute + 5*time.Second)
			n.full(7 * gi)
			wait(25 * time.Second)
			expect(t, "who fills the only disk", n.killed(), []string{"logs/1", "layers/1", "more-layers/1"})
		})
	})
}

func TestLayoutIsAskedForOncePerMinute(t *testing.T) {
	world := &disks{dedicated: true, splitErr: errors.New("no container file system")}
	l := layouter{info: world, splitOK: true}
	for i := range 12 {
		l.current(t.Context(), time.Unix(int64(1e9+10*i), 0))
	}
	if world.asked != 2 {
		t.Errorf("asked %d times in two minutes", world.asked)
	}
}

func TestSplitLayoutIsUnknownWithoutItsGate(t *testing.T) {
	l := layouter{info: &disks{dedicated: true, split: true}}
	if got := l.current(t.Context(), time.Unix(1e9, 0)); got.Known {
		t.Errorf("%+v", got)
	}
}
