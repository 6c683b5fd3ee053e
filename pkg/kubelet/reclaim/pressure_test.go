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
	"github.com/plimsoll-project/plimsoll/test/fixture"
)

// runScenario runs a test in a synctest bubble, with a world of images that are old and were used in their order.
func runScenario(t *testing.T, test func(t *testing.T, w *world, m *Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(newImage("a", 100), newImage("b", 200), newImage("c", 300))
		m := w.manager(t)
		w.setUsed(m, "a", "b", "c")
		test(t, w, m)
	})
}

// mustReclaim reports an error of Reclaim.
func mustReclaim(t *testing.T, m *Manager, q policy.ReclaimRequest) snapshot.Reclaimed {
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
		runScenario(t, func(t *testing.T, w *world, m *Manager) {
			fixture.ExpectEqual(t, "got", mustReclaim(t, m, request(test.target)), test.got)
			fixture.ExpectEqual(t, "removed", w.removed, test.removed)
			fixture.ExpectEqual(t, "events", w.events, []string(nil))
		})
	}
}

// Images share layers, so that removing one may free less than its size. The measurement of the file system counts.
func TestReclaimMeasuresAfterEachRemoval(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.images[0].used = 1
		w.system = 99
		got := mustReclaim(t, m, request(450))
		fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:a", "sha256:b"})
		fixture.ExpectEqual(t, "got", got, snapshot.Reclaimed{Images: 2, Freed: 201, More: true})
	})
}

func TestReclaimOfInodesRemovesOneByOne(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.images[0].inodes, w.images[1].inodes = 0, 500
		q := request(900)
		q.Signal = snapshot.NodeFsInodesFree
		got := mustReclaim(t, m, q)
		fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:a", "sha256:b"})
		fixture.ExpectEqual(t, "got", got, snapshot.Reclaimed{Images: 2, Freed: 500, More: true})
	})
}

func TestImagesInUseStay(t *testing.T) {
	for name, use := range map[string]func(w *world){
		"a container":            func(w *world) { w.addContainer("pod", "c", "a", 0) },
		"the last run of one":    func(w *world) { w.addContainer("pod", "c", "a", time.Hour) },
		"a pod that is starting": func(w *world) { w.active = []*v1.Pod{podWithImage("pod", "a")} },
		"a pull":                 func(w *world) { w.pulling = []string{"a:latest"} },
		"a volume of a container": func(w *world) {
			w.addContainer("pod", "c", "c", 0)
			w.fails["volume of pod-c"] = errors.New("sha256:a")
		},
		"the runtime, which pins it": func(w *world) { w.images[0].Pinned = true },
	} {
		t.Run(name, func(t *testing.T) {
			runScenario(t, func(t *testing.T, w *world, m *Manager) {
				use(w)
				mustReclaim(t, m, request(5000))
				if slices.Contains(w.removed, "sha256:a") || !slices.Contains(w.removed, "sha256:b") {
					t.Errorf("removed %v", w.removed)
				}
				if len(w.remaining) == 0 || !slices.Contains(w.remaining[len(w.remaining)-1], "sha256:a") {
					t.Errorf("the hooks got %v", w.remaining)
				}
			})
		})
	}
}

// An image stays if a pod or a pull begins to refer to it during the collection.
func TestUsageIsCheckedBeforeEachRemoval(t *testing.T) {
	for name, enter := range map[string]func(w *world){
		"pod":  func(w *world) { w.active = []*v1.Pod{podWithImage("pod", "b")} },
		"pull": func(w *world) { w.pulling = []string{"b"} },
	} {
		t.Run(name, func(t *testing.T) {
			runScenario(t, func(t *testing.T, w *world, m *Manager) {
				w.onRemove = func(string) { w.mu.Lock(); enter(w); w.mu.Unlock() }
				mustReclaim(t, m, request(5000))
				fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:a", "sha256:c"})
				fixture.ExpectEqual(t, "remaining", w.remaining, [][]string{{"sha256:b"}})
			})
		})
	}
}

// A container that is removed before its mounts are read has none, and one that another client removes is no failure.
func TestContainersRemovedMeanwhile(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.addContainer("gone", "c", "a", time.Hour)
		w.addContainer("gone", "d", "a", time.Hour)
		w.podStates["gone"] = plan.PodRemoved
		w.fails["GetContainerStatus"] = fmt.Errorf("runtime container status: %w",
			status.Error(codes.NotFound, "no such container"))
		w.fails["gone-c-1h0m0s"] = errors.New("no such container")
		got := mustReclaim(t, m, request(450))
		fixture.ExpectEqual(t, "removed", w.removed, []string{"gone-d-1h0m0s", "sha256:b"})
		fixture.ExpectEqual(t, "got", got, snapshot.Reclaimed{Containers: 1, Images: 1, Freed: 210, More: true})
	})
}

func TestImagesYoungerThanMinAgeStay(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.images = append(w.images, newImage("new", 50))
		m.updateImageList(t.Context())
		time.Sleep(119 * time.Second)
		mustReclaim(t, m, request(5000))
		fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:a", "sha256:b", "sha256:c"})
		time.Sleep(time.Second)
		mustReclaim(t, m, request(5000))
		fixture.ExpectEqual(t, "removed when it was old enough", w.removed[3:], []string{"sha256:new"})
	})
}

// If the usage of images or the available space is unknown, nothing is removed, and the error is reported.
func TestNothingIsRemovedIfUsageIsUnknown(t *testing.T) {
	for what, breaks := range map[string]func(w *world, err error){
		"ListImages": func(w *world, err error) { w.fails["ListImages"] = err },
		"GetPods":    func(w *world, err error) { w.fails["GetPods"] = err },
		"GetContainerStatus": func(w *world, err error) {
			w.addContainer("pod", "c", "c", 0)
			w.fails["GetContainerStatus"] = err
		},
		"measure": func(w *world, err error) { w.measureErr = err },
	} {
		t.Run(what, func(t *testing.T) {
			runScenario(t, func(t *testing.T, w *world, m *Manager) {
				broken := errors.New("the runtime does not respond")
				breaks(w, broken)
				got, err := m.Reclaim(t.Context(), request(5000))
				fixture.ExpectEqual(t, "whether the missing amount is known", got.Missing > 0, what != "measure")
				got.Missing = 0
				fixture.ExpectEqual(t, "got", got, snapshot.Reclaimed{})
				fixture.ExpectEqual(t, "removed", w.removed, []string(nil))
				if !errors.Is(err, broken) || len(w.events) != 1 ||
					!strings.HasPrefix(w.events[0], "ImageGCFailed: Freeing ephemeral-storage of the node device: ") {
					t.Errorf("error %v, events %v", err, w.events)
				}
			})
		})
	}
}

// The runtime hangs until the reclaim gives up. What was missing before that is not reported as missing at the end:
// pods may have ended meanwhile, and another one would be evicted for what they have released.
func TestMissingAmountIsUnknownAfterATimeout(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.unusedHangs = true
		got, err := m.Reclaim(t.Context(), request(5000))
		fixture.ExpectEqual(t, "missing", got.Missing, int64(0))
		if err == nil || w.unusedDeleted != 1 {
			t.Errorf("error %v, calls of DeleteAllUnusedContainers %d", err, w.unusedDeleted)
		}
	})
}

func TestFailedImageRemovalIsSkipped(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.fails["sha256:a"] = errors.New("busy")
		got, err := m.Reclaim(t.Context(), request(450))
		fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:b"})
		if err == nil || got.Images != 1 {
			t.Errorf("got %+v, error %v", got, err)
		}
		fixture.ExpectEqual(t, "remaining", w.remaining, [][]string{{"sha256:a", "sha256:c"}})
	})
}

func TestOrderOfContainersAndImages(t *testing.T) {
	pods := func(w *world) {
		w.addContainer("active", "c", "c", 5*time.Minute)
		w.addContainer("active", "c", "c", 50*time.Minute)
		w.addContainer("active", "c", "c", 0)
		w.addContainer("job", "c", "b", 40*time.Minute)
		w.addContainer("evicted", "c", "a", time.Minute)
		w.addContainer("unknown", "c", "c", time.Minute)
		w.pods[3].Containers[0].State = "unknown"
		w.podStates = map[types.UID]plan.PodState{
			"job": plan.PodTerminated, "evicted": plan.PodRemoved, "unknown": plan.PodRemoved,
		}
	}
	// 1000 less 600 in images and 60 in containers are 340.
	for _, test := range []struct {
		target  int64
		removed []string
		swept   int
	}{
		{345, []string{"evicted-c-1m0s"}, 0},
		{360, []string{"evicted-c-1m0s", "active-c-50m0s"}, 0},
		{361, []string{"evicted-c-1m0s", "active-c-50m0s", "sha256:a"}, 0},
		{461, []string{"evicted-c-1m0s", "active-c-50m0s", "sha256:a", "job-c-40m0s"}, 0},
		{471, []string{"evicted-c-1m0s", "active-c-50m0s", "sha256:a", "job-c-40m0s", "sha256:b"}, 0},
		{671, []string{"evicted-c-1m0s", "active-c-50m0s", "sha256:a", "job-c-40m0s", "sha256:b"}, 1},
	} {
		runScenario(t, func(t *testing.T, w *world, m *Manager) {
			pods(w)
			got := mustReclaim(t, m, request(test.target))
			fixture.ExpectEqual(t, "removed", w.removed, test.removed)
			fixture.ExpectEqual(t, "calls of DeleteAllUnusedContainers", w.unusedDeleted, test.swept)
			fixture.ExpectEqual(t, "more", got.More, test.swept == 0)
		})
	}
}

func TestContainersStayUntilSourcesAreReady(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.addContainer("job", "c", "b", time.Hour)
		w.podStates["job"], w.notReady = plan.PodRemoved, true
		mustReclaim(t, m, request(5000))
		fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:a", "sha256:c"})
	})
}

// The image device of a split file system has no containers; those that are not needed are removed nevertheless,
// because they use images.
func TestReclaimRemovesOnlyWhatIsRequested(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.addContainer("job", "c", "b", time.Hour)
		w.addContainer("gone", "c", "a", time.Hour)
		w.podStates = map[types.UID]plan.PodState{"job": plan.PodTerminated, "gone": plan.PodRemoved}
		q := request(5000)
		q.Containers = false
		mustReclaim(t, m, q)
		fixture.ExpectEqual(t, "removed for images", w.removed, []string{"gone-c-1h0m0s", "sha256:a", "sha256:c"})
		q.Containers, q.Images = true, false
		mustReclaim(t, m, q)
		fixture.ExpectEqual(t, "removed for containers", w.removed[3:], []string{"job-c-1h0m0s"})
		fixture.ExpectEqual(t, "calls of DeleteAllUnusedContainers", w.unusedDeleted, 1)
	})
}

// The fake panics if two removals run at the same time.
func TestReclaimExcludesPeriodicCollection(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.removalTime, w.system = 30*time.Second, 500
		began := time.Now()
		done := make(chan error)
		go func() { done <- m.GarbageCollect(t.Context(), began) }()
		synctest.Wait()
		mustReclaim(t, m, request(250))
		if err := <-done; err != nil {
			t.Error(err)
		}
		fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:a", "sha256:b", "sha256:c"})
	})
}

func TestReclaimEndsWithItsContextWhileItWaits(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.removalTime, w.system = time.Hour, 500
		go func() { _ = m.GarbageCollect(t.Context(), time.Now()) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		if _, err := m.Reclaim(ctx, request(5000)); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		began = time.Now()
		if _, err := m.Reclaim(t.Context(), request(5000)); err == nil || time.Since(began) != timeout {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		time.Sleep(24 * time.Hour)
	})
}

func TestReclaimIsBoundedInTime(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.removalTime = 90 * time.Second
		began := time.Now()
		got, err := m.Reclaim(t.Context(), request(5000))
		if err == nil || !strings.Contains(err.Error(), "longer than 2m") || got.More {
			t.Errorf("got %+v, error %v", got, err)
		}
		fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:a", "sha256:b"})
		fixture.ExpectEqual(t, "time", time.Since(began), 3*time.Minute)
	})
}
