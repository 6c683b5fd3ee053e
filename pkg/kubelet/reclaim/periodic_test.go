package reclaim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/fixture"
)

func TestPeriodicCollectionFreesDownToTheLowPercentage(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		began := time.Now()
		w.system = 290
		if err := m.GarbageCollect(t.Context(), began); err != nil || len(w.removed) > 0 {
			t.Errorf("at 89 %%: removed %v, error %v", w.removed, err)
		}
		w.system = 300
		if err := m.GarbageCollect(t.Context(), began); err != nil {
			t.Error(err)
		}
		fixture.ExpectEqual(t, "removed at 90 %", w.removed, []string{"sha256:a"})
		fixture.ExpectEqual(t, "remaining", w.remaining, [][]string{{"sha256:b", "sha256:c"}})
	})
}

func TestPeriodicCollectionReportsInsufficientSpace(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.capacity, w.system = 1<<20, 1<<20
		err := m.GarbageCollect(t.Context(), time.Now())
		want := "Insufficient free disk space on the node's image filesystem (100% of 1.0 MiB used). Failed to free " +
			"sufficient space by deleting unused images (freed 600 bytes). " +
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
		if err == nil || err.Error() != want {
			t.Errorf("error %v", err)
		}
		fixture.ExpectEqual(t, "events", w.events, []string{"FreeDiskSpaceFailed: " + want})
	})
}

func TestPeriodicCollectionByAge(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		// c was last used eleven minutes ago, b twelve, a thirteen.
		m.config.Policy.Images.MaxAge = 11*time.Minute + time.Second
		began := time.Now()
		w.fails["sha256:a"] = errors.New("busy")
		collect := func() error { return m.GarbageCollect(t.Context(), began) }
		if err := collect(); err != nil || len(w.removed) > 0 {
			t.Errorf("before the maximal age has passed since the start: removed %v, error %v", w.removed, err)
		}
		began = began.Add(-time.Hour)
		if err := collect(); err == nil || !strings.Contains(err.Error(), "wanted to free images older than 11m1s") {
			t.Errorf("error %v", err)
		}
		fixture.ExpectEqual(t, "removed", w.removed, []string{"sha256:b"})
		fixture.ExpectEqual(t, "remaining", w.remaining, [][]string{{"sha256:a", "sha256:c"}})
	})
}

func TestPeriodicCollectionWithoutStats(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		broken := errors.New("no stats")
		w.fails["ImageFsStats"] = broken
		if err := m.GarbageCollect(t.Context(), time.Now()); !errors.Is(err, broken) {
			t.Errorf("error %v", err)
		}
		delete(w.fails, "ImageFsStats")
		w.capacity = 0
		if err := m.GarbageCollect(t.Context(), time.Now()); err == nil {
			t.Error("a capacity of zero was accepted")
		}
		fixture.ExpectEqual(t, "events", w.events, []string{"InvalidDiskCapacity: invalid capacity 0 on image filesystem"})
		fixture.ExpectEqual(t, "removed", w.removed, []string(nil))
	})
}

func TestSize(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1536 << 10: "1.5 MiB", 3 << 30: "3.0 GiB", 5 << 40: "5.0 TiB",
		5 << 50: "5120.0 TiB",
	} {
		if got := formatBytes(bytes); got != want {
			t.Errorf("%d is %q, want %q", bytes, got, want)
		}
	}
}

// runFor runs a loop for a time and waits for its end.
func runFor(t *testing.T, d time.Duration, loop func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	loop(ctx)
	if ctx.Err() == nil {
		t.Error("the loop has ended before its context")
	}
}

func TestCollectContainersEveryMinute(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		runFor(t, 150*time.Second, m.CollectContainers)
		w.fails["GarbageCollect"] = errors.New("no runtime")
		runFor(t, 30*time.Second, m.CollectContainers)
		fixture.ExpectEqual(t, "collections", w.collected, 4)
		fixture.ExpectEqual(t, "events", w.events, []string{"ContainerGCFailed: no runtime"})
	})
}

func TestCollectImagesEveryFiveMinutes(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		var before []string
		time.AfterFunc(time.Minute, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.system = 300
		})
		time.AfterFunc(4*time.Minute, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			before = slices.Clone(w.removed)
		})
		runFor(t, 6*time.Minute, m.CollectImages)
		fixture.ExpectEqual(t, "removed within four minutes", before, []string(nil))
		fixture.ExpectEqual(t, "removed within six minutes", w.removed, []string{"sha256:a"})
	})
}

// The first of several errors has no event: statistics may be missing when the agent starts.
func TestCollectImagesReportsAnErrorThatFollowsAnother(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		w.fails["ImageFsStats"] = errors.New("no stats")
		runFor(t, 4*time.Minute, m.CollectImages)
		fixture.ExpectEqual(t, "events after one error", w.events, []string(nil))
		runFor(t, 6*time.Minute, m.CollectImages)
		fixture.ExpectEqual(t, "events after two errors", w.events, []string{"ImageGCFailed: no stats"})
	})
}

// With an upper percentage of 100 and no maximal age nothing can be removed.
func TestCollectImagesSwitchedOff(t *testing.T) {
	runScenario(t, func(t *testing.T, w *world, m *Manager) {
		m.config.Policy.HighPercent = 100
		w.fails["ImageFsStats"] = errors.New("no stats")
		m.CollectImages(t.Context())
		m.config.Policy.Images.MaxAge = time.Hour
		runFor(t, 6*time.Minute, m.CollectImages)
		fixture.ExpectEqual(t, "events, all from the loop with a maximal age", w.events, []string{"ImageGCFailed: no stats"})
	})
}
