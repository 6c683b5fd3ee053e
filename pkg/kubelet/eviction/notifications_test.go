package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/memorywatch"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/notify"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// fakeSource writes down the levels it is armed at.
type fakeSource struct {
	levels []int64
	closed bool
}

func (f *fakeSource) Arm(usage int64) error { f.levels = append(f.levels, usage); return nil }
func (f *fakeSource) Close() error          { f.closed = true; return nil }

// fakeWatched are thresholds with the usages at which they are met.
type fakeWatched struct {
	ids    []policy.ThresholdID
	usages map[policy.ThresholdID]int64
}

var (
	ofNode     = policy.ThresholdID{Signal: snapshot.MemoryAvailable}
	softOfNode = policy.ThresholdID{Signal: snapshot.MemoryAvailable, Soft: true}
	softOfPods = policy.ThresholdID{Signal: snapshot.AllocatableMemoryAvailable, Soft: true}
)

func (w *fakeWatched) Thresholds() []policy.ThresholdID { return w.ids }

func (w *fakeWatched) UsageAt(id policy.ThresholdID) (int64, bool) {
	usage, ok := w.usages[id]
	return usage, ok
}

func someWatched() *fakeWatched {
	return &fakeWatched{
		ids:    []policy.ThresholdID{ofNode, softOfPods},
		usages: map[policy.ThresholdID]int64{ofNode: 10 * gi, softOfPods: 6 * gi, softOfNode: 8 * gi},
	}
}

func TestNotificationsFollowTheMemoryWatcher(t *testing.T) {
	made := map[snapshot.Signal]*fakeSource{}
	n := &notifications{open: func(sig snapshot.Signal) (notify.Source, error) {
		made[sig] = &fakeSource{}
		return made[sig], nil
	}}
	w, now := someWatched(), time.Unix(100, 0)
	n.arm(t.Context(), w, now)
	w.usages[ofNode] = 11 * gi
	n.arm(t.Context(), w, now.Add(time.Millisecond))
	n.arm(t.Context(), w, now.Add(2*time.Second))
	expect(t, "levels of the node", made[snapshot.MemoryAvailable].levels, []int64{10 * gi, 11 * gi})
	expect(t, "levels of pods", made[snapshot.AllocatableMemoryAvailable].levels, []int64{6 * gi, 6 * gi})
	n.close()
	expect(t, "closed", made[snapshot.MemoryAvailable].closed && made[snapshot.AllocatableMemoryAvailable].closed, true)
}

// TestNotificationsStayWithTheirThresholds: thresholds change places, one goes, one comes.
func TestNotificationsStayWithTheirThresholds(t *testing.T) {
	made := map[snapshot.Signal][]*fakeSource{}
	n := &notifications{open: func(sig snapshot.Signal) (notify.Source, error) {
		made[sig] = append(made[sig], &fakeSource{})
		return made[sig][len(made[sig])-1], nil
	}}
	w, now := someWatched(), time.Unix(100, 0)
	n.arm(t.Context(), w, now)
	w.ids[0], w.ids[1] = w.ids[1], w.ids[0]
	n.arm(t.Context(), w, now.Add(2*time.Second))
	node, pods := made[snapshot.MemoryAvailable], made[snapshot.AllocatableMemoryAvailable]
	expect(t, "levels of the node", node[0].levels, []int64{10 * gi, 10 * gi})
	expect(t, "levels of pods", pods[0].levels, []int64{6 * gi, 6 * gi})
	w.ids[0] = softOfNode
	n.arm(t.Context(), w, now.Add(4*time.Second))
	node = made[snapshot.MemoryAvailable]
	expect(t, "sources", len(node)+len(pods), 3)
	expect(t, "closed", []bool{node[0].closed, node[1].closed, pods[0].closed}, []bool{false, false, true})
	expect(t, "levels of the soft threshold", node[1].levels, []int64{8 * gi})
	n.close()
	expect(t, "closed in the end", node[0].closed && node[1].closed, true)
}

func TestRefusedNotificationsAreTriedOnce(t *testing.T) {
	tries := 0
	n := &notifications{open: func(snapshot.Signal) (notify.Source, error) {
		tries++
		return nil, errors.New("cgroup v2")
	}}
	for i := range 5 {
		n.arm(t.Context(), someWatched(), time.Unix(int64(100+10*i), 0))
	}
	n.close()
	expect(t, "tries", fmt.Sprint(tries), "1")
}

// TestNotificationsAreArmedAtTheThreshold: memory that is spare counts in each level, also after all was read because
// the cgroup of all pods is full of page cache.
func TestNotificationsAreArmedAtTheThreshold(t *testing.T) {
	made := &fakeSource{}
	n := &notifications{open: func(snapshot.Signal) (notify.Source, error) { return made, nil }}
	world := newNode()
	world.add("pod", 18*gi).cached = 13 * gi
	thresholds, err := settings.ParseThresholds(hard("1Gi"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(100, 0)
	w := memorywatch.New(&kernel{node: world}, func() time.Time { return now })
	w.Adopt(new(settings.DefaultOptions()))
	for range 3 {
		w.Arm(thresholds)
		n.arm(t.Context(), w, now)
		w.Check()
		now = now.Add(2 * time.Second)
	}
	expect(t, "levels", made.levels, []int64{44 * gi, 44 * gi, 44 * gi})
}
