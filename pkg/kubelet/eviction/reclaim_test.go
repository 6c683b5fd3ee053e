package eviction

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot/collect"
)

// sized is a node-level reclaim that frees the target, a piece at a time, until nothing is left.
type sized struct {
	*node
	left, piece int64
	requests    []policy.ReclaimRequest
	// hang is its duration, err its error.
	hang time.Duration
	err  error
}

func (s *sized) Reclaim(ctx context.Context, q policy.ReclaimRequest) (snapshot.Reclaimed, error) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	select {
	case <-time.After(hang):
	case <-ctx.Done():
		return snapshot.Reclaimed{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, q)
	if s.err != nil {
		return snapshot.Reclaimed{}, s.err
	}
	var got snapshot.Reclaimed
	for s.left > 0 && s.disk.capacity-s.disk.used < q.Target {
		s.left, s.disk.used = s.left-s.piece, s.disk.used-s.piece
		got.Freed, got.Images = got.Freed+s.piece, got.Images+1
	}
	got.More = got.Images > 0 && s.disk.capacity-s.disk.used >= q.Target
	return got, nil
}

// fills writes to the disk for a while.
func (s *sized) fills(rate int64, wait func(time.Duration), times int) {
	for range times {
		s.mu.Lock()
		s.disk.used += rate
		s.mu.Unlock()
		wait(time.Second)
	}
}

func TestImagesAreRemovedGraduallyBeforeAPodIsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sized{node: newNode(), left: 20 * gi, piece: gi}
		s.add("writer", gi).disk = 30 * gi
		s.disk.used = 85 * gi
		c := s.config(t, settings.ThresholdConfig{Hard: map[string]string{"nodefs.available": "10Gi"},
			MinimumReclaim: map[string]string{"nodefs.available": "1Gi"}})
		c.Reclaimer = s
		run(t, s.node, c, func(m *Manager, wait func(time.Duration)) {
			// Without a reclaim of images it would be full in a minute and a half.
			s.fills(200*mi, wait, 100)
			expect(t, "kills while there were images", s.killed(), []string{})
			if len(s.requests) < 2 || s.requests[0].Target != 11*gi || s.left == 0 {
				t.Errorf("requests %+v, left %d", s.requests, s.left)
			}
			expect(t, "disk pressure", m.IsUnderDiskPressure(), true)
			s.fills(200*mi, wait, 40)
			expect(t, "left", s.left, 0)
			expect(t, "kills without images", s.killed(), []string{"writer/1"})
		})
	})
}

func TestReclaimThatFailsOrHangsDoesNotHoldUpEvictions(t *testing.T) {
	for name, test := range map[string]struct {
		hang time.Duration
		err  error
		in   time.Duration
	}{
		"fails": {0, errors.New("the runtime is away"), 25 * time.Second},
		"hangs": {time.Hour, nil, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sized{node: newNode(), hang: test.hang, err: test.err, left: 50 * gi, piece: gi}
				s.add("writer", gi).disk = 30 * gi
				s.disk.used = 95 * gi
				c := s.config(t, settings.ThresholdConfig{Hard: map[string]string{"nodefs.available": "10Gi"}})
				c.Reclaimer = s
				run(t, s.node, c, func(m *Manager, wait func(time.Duration)) {
					wait(test.in)
					expect(t, "kills", s.killed(), []string{"writer/1"})
				})
			})
		})
	}
}

// ownImageDisk is a layout with images on a device of their own, and writable layers beside them unless it is split.
type ownImageDisk struct{ split bool }

func (d *ownImageDisk) HasDedicatedImageFs(context.Context) (bool, error)     { return true, nil }
func (d *ownImageDisk) HasDedicatedContainerFs(context.Context) (bool, error) { return d.split, nil }

func TestD14ImagesAreAskedForWhereTheyAreApart(t *testing.T) {
	for _, split := range []bool{true, false} {
		n := newNode()
		asked := 0
		c := Config{Collector: collectorOf(t, collect.Sources{
			Summary: n, DiskInfo: &ownImageDisk{split}, SeparateDiskGC: true,
			PodImages: func(context.Context) (map[types.UID]snapshot.Bytes, error) {
				asked++
				return map[types.UID]snapshot.Bytes{"pod": 7}, nil
			},
		})}
		n.add("pod", mi)
		f := (&Manager{config: c, clock: newAgentClock(clock.RealClock{})}).collectStats(t.Context(), collectRequest{})
		pods := (&builder{}).pods(n.active(), &f, everyPod)
		want := snapshot.Bytes(snapshot.Unknown)
		if split {
			want = 7
		}
		if len(pods) != 1 || pods[0].Images != want || (asked > 0) != split {
			t.Errorf("split %v: asked %d times, pods %+v", split, asked, pods)
		}
	}
}

// TestNodeIsAskedInStocksPaceWhileNobodyMayGo: pods wait for the end of pressure, so that stats are collected every
// two seconds.
func TestNodeIsAskedInStocksPaceWhileNobodyMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode()
		n.full(5 * gi)
		p := &paced{node: n}
		c := n.config(t, hardDisk("10Gi"))
		c.Collector = n.collector(t, p)
		run(t, n, c, func(m *Manager, wait func(time.Duration)) {
			wait(time.Second)
			waitsFor(t, m, wait, 99*time.Second)
			if p.calls() < 40 {
				t.Errorf("only %d collections", p.calls())
			}
			if asked := len(n.targets); asked < 9 || asked > 11 {
				t.Errorf("the node was asked %d times in 100 s", asked)
			}
		})
	})
}
