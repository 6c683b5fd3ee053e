package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/notify"
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

func armedWatcher() *memoryWatcher {
	return &memoryWatcher{
		node: scope{known: true, capacity: 10 * gi, spare: gi}, pods: scope{known: true, capacity: 8 * gi},
		floors: []floor{{signal: snapshot.MemoryAvailable, hard: true, amount: gi},
			{signal: snapshot.AllocatableMemoryAvailable, amount: 2 * gi}},
	}
}

func TestNotificationsFollowTheMemoryWatcher(t *testing.T) {
	made := map[snapshot.Signal]*fakeSource{}
	n := &notifications{open: func(sig snapshot.Signal) (notify.Source, error) {
		made[sig] = &fakeSource{}
		return made[sig], nil
	}}
	w, now := armedWatcher(), time.Unix(100, 0)
	n.arm(t.Context(), w, now)
	w.node.spare = 2 * gi
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
	w, now := armedWatcher(), time.Unix(100, 0)
	n.arm(t.Context(), w, now)
	w.floors[0], w.floors[1] = w.floors[1], w.floors[0]
	n.arm(t.Context(), w, now.Add(2*time.Second))
	node, pods := made[snapshot.MemoryAvailable], made[snapshot.AllocatableMemoryAvailable]
	expect(t, "levels of the node", node[0].levels, []int64{10 * gi, 10 * gi})
	expect(t, "levels of pods", pods[0].levels, []int64{6 * gi, 6 * gi})
	w.floors[0] = floor{signal: snapshot.MemoryAvailable, amount: 3 * gi}
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
		n.arm(t.Context(), armedWatcher(), time.Unix(int64(100+10*i), 0))
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
	w := newMemoryWatcher(&kernel{node: world}, func() time.Time { return now })
	w.adopt(new(settings.DefaultOptions()))
	for range 3 {
		w.arm(thresholds)
		n.arm(t.Context(), w, now)
		w.check()
		now = now.Add(2 * time.Second)
	}
	expect(t, "levels", made.levels, []int64{44 * gi, 44 * gi, 44 * gi})
}
