package nodeshutdown

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
)

func shown(t *testing.T) (start, end float64) {
	t.Helper()
	start, err := testutil.GetGaugeMetricValue(metrics.GracefulShutdownStartTime)
	if err != nil {
		t.Fatal(err)
	}
	end, err = testutil.GetGaugeMetricValue(metrics.GracefulShutdownEndTime)
	if err != nil {
		t.Fatal(err)
	}
	return start, end
}

// The times of a shutdown are shown while it lasts, when it is over, and by the agent that comes after it.
func TestTimesAreShown(t *testing.T) {
	metrics.Register()
	file := filepath.Join(t.TempDir(), StateFileName)
	play(t, twoGroups, func(w *world) {
		w.cfg.StateFile = file
		began := float64(time.Now().Unix())
		w.add(aPod("plain", 0, 30), 3)
		w.Start(w.ctx)
		w.announce(true)
		if start, end := shown(t); start != began || end != 0 {
			t.Errorf("shown %v, %v, want %v, 0", start, end, began)
		}
		w.sleep(10)
		if start, end := shown(t); start != began || end != began+3 {
			t.Errorf("shown %v, %v, want %v, %v", start, end, began, began+3)
		}
	})
	want, wantEnd := shown(t)
	metrics.GracefulShutdownStartTime.Set(0)
	metrics.GracefulShutdownEndTime.Set(0)
	play(t, twoGroups, func(w *world) {
		w.cfg.StateFile = file
		w.Start(w.ctx)
		if start, end := shown(t); start != want || end != wantEnd {
			t.Errorf("shown %v, %v, want %v, %v", start, end, want, wantEnd)
		}
	})
}

// Stock's file, as it is after its shutdown, and what is no such file.
func TestTimesAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), StateFileName)
	if got, err := readTimes(path); err != nil || got != (times{}) {
		t.Errorf("without a file %+v, error %v", got, err)
	}
	for content, valid := range map[string]bool{
		`{"startTime":"2026-01-02T03:04:05.678901234+01:00","endTime":"2026-01-02T03:04:35.678901234+01:00"}`: true,
		`{"startTime":"yesterday"}`: false,
		``:                          false,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readTimes(path)
		if (err == nil) != valid || valid && got.EndTime.Sub(got.StartTime) != 30*time.Second || !valid &&
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %+v, error %v", content, got, err)
		}
	}
}

// A disk that cannot be written to does not stop a shutdown, and leaves nothing behind.
func TestTimesCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.Mkdir(taken, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "no", "folder"), taken} {
		if err := (times{}).write(path); err == nil || !strings.Contains(err.Error(), "times of the shutdown") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%d files are left, error %v", len(left), err)
	}
	play(t, twoGroups, func(w *world) {
		w.cfg.StateFile = taken
		w.Start(w.ctx)
		w.announce(true)
		w.expect("0 grant 30s", "0 lock 1", "0 node down=true", "0 unlock 1")
	})
}
