package collect

import (
	"context"
	"errors"
	"testing"
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
		"a runtime that fails at first": {
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
			l := layoutDetector{info: world, splitSupported: true}
			now := time.Unix(1e9, 0)
			for i, s := range steps {
				now, *world = now.Add(s.after), s.disks
				if got := l.detect(t.Context(), now); got != s.want {
					t.Errorf("step %d: %+v, want %+v", i, got, s.want)
				}
			}
		})
	}
}

func TestLayoutIsDetectedOncePerMinute(t *testing.T) {
	world := &disks{dedicated: true, splitErr: errors.New("no container file system")}
	l := layoutDetector{info: world, splitSupported: true}
	for i := range 12 {
		l.detect(t.Context(), time.Unix(int64(1e9+10*i), 0))
	}
	if world.asked != 2 {
		t.Errorf("%d calls in two minutes", world.asked)
	}
}

func TestSplitLayoutIsUnknownWithoutItsGate(t *testing.T) {
	l := layoutDetector{info: &disks{dedicated: true, split: true}}
	if got := l.detect(t.Context(), time.Unix(1e9, 0)); got.Known {
		t.Errorf("%+v", got)
	}
}
