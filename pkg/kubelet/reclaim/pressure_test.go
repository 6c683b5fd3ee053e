package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// bubble runs a test in a bubble of time, with a world of images that are old and were used in their order.
func bubble(t *testing.T, test func(t *testing.T, w *world, m *Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(img("a", 100), img("b", 200), img("c", 300))
		m := w.manager(t)
		w.used(m, "a", "b", "c")
		test(t, w, m)
	})
}

// reclaim wants no error.
func reclaimed(t *testing.T, m *Manager, q policy.ReclaimRequest) snapshot.Reclaimed {
	t.Helper()
	got, err := m.Reclaim(t.Context(), q)
	if err != nil {
		t.Error(err)
	}
	return got
}

func TestReclaimFreesWhatIsNeededLeastRecentlyUsedFirst(t *testing.T) {
	for _, test := range []struct {
		target  int64
		removed []string
		got     snapshot.Reclaimed
	}{
		{400, nil, snapshot.Reclaimed{}},
		{401, []string{"sha256:a"}, snapshot.Reclaimed{Images: 1, Freed: 100, More: true}},
		{500, []string{"sha256:a"}, snapshot.Reclaimed{Images: 1, Freed: 100, More: true}},
		{501, []string{"sha256:a", "sha256:b"}, snapshot.Reclaimed{Images: 2, Freed: 300, More: true}},
		{5000, []string{"sha256:a", "sha256:b", "sha256:c"}, snapshot.Reclaimed{Images: 3, Freed: 600, Missing: 4000}},
	} {
		bubble(t, func(t *testing.T, w *world, m *Manager) {
			expect(t, "got", reclaimed(t, m, wants(test.target)), test.got)
			expect(t, "removed", w.removed, test.removed)
			expect(t, "events", w.events, []string(nil))
		})
	}
}

// Images share layers, so that removing one may free less than its size. What counts is what the file system says.
func TestReclaimMeasures(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.images[0].takes = 1
		w.system = 99
		got := reclaimed(t, m, wants(450))
		expect(t, "removed", w.removed, []string{"sha256:a", "sha256:b"})
		expect(t, "got", got, snapshot.Reclaimed{Images: 2, Freed: 201, More: true})
	})
}

func TestReclaimOfInodesGoesOneByOne(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.images[0].inodes, w.images[1].inodes = 0, 500
		q := wants(900)
		q.Signal = snapshot.NodeFsInodesFree
		got := reclaimed(t, m, q)
		expect(t, "removed", w.removed, []string{"sha256:a", "sha256:b"})
		expect(t, "got", got, snapshot.Reclaimed{Images: 2, Freed: 500, More: true})
	})
}

func TestWhatIsInUseStays(t *testing.T) {
	for name, use := range map[string]func(w *world){
		"a container":            func(w *world) { w.runs("pod", "c", "a", 0) },
		"the last run of one":    func(w *world) { w.runs("pod", "c", "a", time.Hour) },
		"a pod that is starting": func(w *world) { w.active = []*v1.Pod{podOf("pod", "a")} },
		"a pull":                 func(w *world) { w.pulling = []string{"a:latest"} },
		"a volume of a container": func(w *world) {
			w.runs("pod", "c", "c", 0)
			w.fails["volume of pod-c"] = errors.New("sha256:a")
		},
		"the runtime, which pins it": func(w *world) { w.images[0].Pinned = true },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, m *Manager) {
				use(w)
				reclaimed(t, m, wants(5000))
				if slices.Contains(w.removed, "sha256:a") || !slices.Contains(w.removed, "sha256:b") {
					t.Errorf("removed %v", w.removed)
				}
				if len(w.hooked) == 0 || !slices.Contains(w.hooked[len(w.hooked)-1], "sha256:a") {
					t.Errorf("the hooks were told that there is %v", w.hooked)
				}
			})
		})
	}
}

// A pod that enters while images are removed finds its own.
func TestUseIsLookedAtAgainBeforeEachRemoval(t *testing.T) {
	for name, enter := range map[string]func(w *world){
		"pod":  func(w *world) { w.active = []*v1.Pod{podOf("pod", "b")} },
		"pull": func(w *world) { w.pulling = []string{"b"} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, m *Manager) {
				w.onRemove = func(string) { w.mu.Lock(); enter(w); w.mu.Unlock() }
				reclaimed(t, m, wants(5000))
				expect(t, "removed", w.removed, []string{"sha256:a", "sha256:c"})
				expect(t, "remaining", w.hooked, [][]string{{"sha256:b"}})
			})
		})
	}
}

// A container that is gone before its mounts are read has none, and one that somebody else removes is no failure.
func TestContainersThatVanish(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.runs("gone", "c", "a", time.Hour)
		w.runs("gone", "d", "a", time.Hour)
		w.fates["gone"] = plan.Gone
		w.fails["GetContainerStatus"] = fmt.Errorf("runtime container status: %w",
			status.Error(codes.NotFound, "no such container"))
		w.fails["gone-c-1h0m0s"] = errors.New("no such container")
		got := reclaimed(t, m, wants(450))
		expect(t, "removed", w.removed, []string{"gone-d-1h0m0s", "sha256:b"})
		expect(t, "got", got, snapshot.Reclaimed{Containers: 1, Images: 1, Freed: 210, More: true})
	})
}

func TestYoungImagesStay(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.images = append(w.images, img("new", 50))
		m.refresh(t.Context())
		time.Sleep(119 * time.Second)
		reclaimed(t, m, wants(5000))
		expect(t, "removed", w.removed, []string{"sha256:a", "sha256:b", "sha256:c"})
		time.Sleep(time.Second)
		reclaimed(t, m, wants(5000))
		expect(t, "removed when it was old enough", w.removed[3:], []string{"sha256:new"})
	})
}

// When it cannot be known who uses what, or what it would bring, nothing is removed and the error is said.
func TestUnknownUseRemovesNothing(t *testing.T) {
	for what, breaks := range map[string]func(w *world, err error){
		"ListImages": func(w *world, err error) { w.fails["ListImages"] = err },
		"GetPods":    func(w *world, err error) { w.fails["GetPods"] = err },
		"GetContainerStatus": func(w *world, err error) {
			w.runs("pod", "c", "c", 0)
			w.fails["GetContainerStatus"] = err
		},
		"measure": func(w *world, err error) { w.measureErr = err },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, w *world, m *Manager) {
				broken := errors.New("the runtime is away")
				breaks(w, broken)
				got, err := m.Reclaim(t.Context(), wants(5000))
				expect(t, "what is missing is known", got.Missing > 0, what != "measure")
				got.Missing = 0
				expect(t, "got", got, snapshot.Reclaimed{})
				expect(t, "removed", w.removed, []string(nil))
				if !errors.Is(err, broken) || len(w.events) != 1 ||
					!strings.HasPrefix(w.events[0], "ImageGCFailed: Freeing ephemeral-storage of the node device: ") {
					t.Errorf("error %v, events %v", err, w.events)
				}
			})
		})
	}
}

func TestAnImageThatCannotBeRemovedIsPassedOver(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.fails["sha256:a"] = errors.New("busy")
		got, err := m.Reclaim(t.Context(), wants(450))
		expect(t, "removed", w.removed, []string{"sha256:b"})
		if err == nil || got.Images != 1 {
			t.Errorf("got %+v, error %v", got, err)
		}
		expect(t, "remaining", w.hooked, [][]string{{"sha256:a", "sha256:c"}})
	})
}

func TestDeadContainersGoInTurnWithImages(t *testing.T) {
	pods := func(w *world) {
		w.runs("lives", "c", "c", 5*time.Minute)
		w.runs("lives", "c", "c", 50*time.Minute)
		w.runs("lives", "c", "c", 0)
		w.runs("job", "c", "b", 40*time.Minute)
		w.runs("evicted", "c", "a", time.Minute)
		w.runs("unknown", "c", "c", time.Minute)
		w.pods[3].Containers[0].State = "unknown"
		w.fates = map[types.UID]plan.Fate{"job": plan.Ended, "evicted": plan.Gone, "unknown": plan.Gone}
	}
	// 1000 less 600 in images and 60 in containers are 340.
	for _, test := range []struct {
		target  int64
		removed []string
		swept   int
	}{
		{345, []string{"evicted-c-1m0s"}, 0},
		{360, []string{"evicted-c-1m0s", "lives-c-50m0s"}, 0},
		{361, []string{"evicted-c-1m0s", "lives-c-50m0s", "sha256:a"}, 0},
		{461, []string{"evicted-c-1m0s", "lives-c-50m0s", "sha256:a", "job-c-40m0s"}, 0},
		{471, []string{"evicted-c-1m0s", "lives-c-50m0s", "sha256:a", "job-c-40m0s", "sha256:b"}, 0},
		{671, []string{"evicted-c-1m0s", "lives-c-50m0s", "sha256:a", "job-c-40m0s", "sha256:b"}, 1},
	} {
		bubble(t, func(t *testing.T, w *world, m *Manager) {
			pods(w)
			got := reclaimed(t, m, wants(test.target))
			expect(t, "removed", w.removed, test.removed)
			expect(t, "swept", w.swept, test.swept)
			expect(t, "more", got.More, test.swept == 0)
		})
	}
}

func TestContainersStayWhileItIsNotKnownWhoseTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.runs("job", "c", "b", time.Hour)
		w.fates["job"], w.notReady = plan.Gone, true
		reclaimed(t, m, wants(5000))
		expect(t, "removed", w.removed, []string{"sha256:a", "sha256:c"})
	})
}

// On the image device of a split file system there are no containers; those that nobody has a use for go all the same,
// since they hold images.
func TestOnlyWhatIsAskedForGoes(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.runs("job", "c", "b", time.Hour)
		w.runs("gone", "c", "a", time.Hour)
		w.fates = map[types.UID]plan.Fate{"job": plan.Ended, "gone": plan.Gone}
		q := wants(5000)
		q.Containers = false
		reclaimed(t, m, q)
		expect(t, "removed for images", w.removed, []string{"gone-c-1h0m0s", "sha256:a", "sha256:c"})
		q.Containers, q.Images = true, false
		reclaimed(t, m, q)
		expect(t, "removed for containers", w.removed[3:], []string{"job-c-1h0m0s"})
		expect(t, "swept", w.swept, 1)
	})
}

// The fake panics when two removals run at a time.
func TestPressureAndPeriodicCollectionTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.removing, w.system = 30*time.Second, 500
		began := time.Now()
		done := make(chan error)
		go func() { done <- m.GarbageCollect(t.Context(), began) }()
		synctest.Wait()
		reclaimed(t, m, wants(250))
		if err := <-done; err != nil {
			t.Error(err)
		}
		expect(t, "removed", w.removed, []string{"sha256:a", "sha256:b", "sha256:c"})
	})
}

func TestWaitingForTheTurnEndsWithTheContext(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.removing, w.system = time.Hour, 500
		go func() { _ = m.GarbageCollect(t.Context(), time.Now()) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if _, err := m.Reclaim(ctx, wants(5000)); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		began = time.Now()
		if _, err := m.Reclaim(t.Context(), wants(5000)); err == nil || time.Since(began) != limit {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		time.Sleep(24 * time.Hour)
	})
}

func TestReclaimIsBoundedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, w *world, m *Manager) {
		w.removing = 90 * time.Second
		began := time.Now()
		got, err := m.Reclaim(t.Context(), wants(5000))
		if err == nil || !strings.Contains(err.Error(), "longer than 2m") || got.More {
			t.Errorf("got %+v, error %v", got, err)
		}
		expect(t, "removed", w.removed, []string{"sha256:a", "sha256:b"})
		expect(t, "time", time.Since(began), 3*time.Minute)
	})
}
