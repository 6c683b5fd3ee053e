package nodeshutdown

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/component-base/metrics/testutil"
	"k8s.io/kubernetes/pkg/kubelet/metrics"
	"k8s.io/utils/clock"
)

func published(t *testing.T) (start, end float64) {
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

// The times of a shutdown are published during and after the shutdown, and by the next run of the agent.
func TestTimesArePublished(t *testing.T) {
	metrics.Register()
	file := filepath.Join(t.TempDir(), StateFileName)
	play(t, twoGroups, func(w *world) {
		w.cfg.StateFile = file
		begin := float64(time.Now().Unix())
		w.add(aPod("plain", 0, 30), 3)
		w.Start(w.ctx)
		w.announce(true)
		if start, end := published(t); start != begin || end != 0 {
			t.Errorf("published %v, %v, want %v, 0", start, end, begin)
		}
		w.sleep(10)
		if start, end := published(t); start != begin || end != begin+3 {
			t.Errorf("published %v, %v, want %v, %v", start, end, begin, begin+3)
		}
	})
	want, wantEnd := published(t)
	metrics.GracefulShutdownStartTime.Set(0)
	metrics.GracefulShutdownEndTime.Set(0)
	play(t, twoGroups, func(w *world) {
		w.cfg.StateFile = file
		w.Start(w.ctx)
		if start, end := published(t); start != want || end != wantEnd {
			t.Errorf("published %v, %v, want %v, %v", start, end, want, wantEnd)
		}
	})
}

// readTimes reads stock's file, and returns an error for other content.
func TestReadTimes(t *testing.T) {
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

// If the state file cannot be written, the shutdown continues, and no temporary file is left.
func TestUnwritableStateFile(t *testing.T) {
	dir := t.TempDir()
	taken, file := filepath.Join(dir, "taken"), filepath.Join(dir, "file")
	if err := errors.Join(os.Mkdir(taken, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "below"), taken} {
		if err := (times{}).write(path); err == nil || !strings.Contains(err.Error(), "times of the shutdown") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("%d files are left, error %v", len(left), err)
	}
	play(t, twoGroups, func(w *world) {
		w.cfg.StateFile = taken
		w.Start(w.ctx)
		w.announce(true)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 unlock 1")
	})
}

// A disk hangs while the times of a shutdown are written, which is cancelled; then another one begins. The file has the
// times of the latter in the end.
func TestTimesAreWrittenInOrder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, StateFileName)
	m := New(Config{StateFile: file, Clock: clock.RealClock{}})
	if err := syscall.Mkfifo(file+".tmp", 0o600); err != nil { // Opening it for writing hangs.
		t.Fatal(err)
	}
	m.storeTimes(t.Context(), times{StartTime: time.Unix(1000, 0)})
	m.storeTimes(t.Context(), times{StartTime: time.Unix(1000, 0), EndTime: time.Unix(1001, 0)})
	last := m.storeTimes(t.Context(), times{StartTime: time.Unix(2000, 0)})
	hanging, err := os.OpenFile(file+".tmp", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer hanging.Close()
	<-last
	if got, err := readTimes(file); err != nil || got.StartTime.Unix() != 2000 {
		t.Errorf("stored are %+v, %v", got, err)
	}
}

// A disk hangs when the agent starts: it asks logind for a lock all the same. The times of a shutdown that begins
// meanwhile stay published when the disk answers.
func TestStoredTimesAreReadLate(t *testing.T) {
	metrics.Register()
	file := filepath.Join(t.TempDir(), StateFileName)
	if err := syscall.Mkfifo(file, 0o600); err != nil { // Opening it for reading hangs.
		t.Fatal(err)
	}
	connected := make(chan struct{})
	m := New(Config{
		Periods: twoGroups, StateFile: file, Clock: clock.RealClock{},
		Connect: func(context.Context) (Logind, error) { close(connected); return nil, errTest },
	})
	ctx, cancel := context.WithCancel(t.Context())
	m.Start(ctx)
	<-connected
	cancel()
	m.Wait()
	begin := time.Unix(2000, 0)
	stored := m.storeTimes(t.Context(), times{StartTime: begin})
	disk, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	before := times{StartTime: time.Unix(1000, 0), EndTime: time.Unix(1001, 0)}
	if err := errors.Join(json.NewEncoder(disk).Encode(before), disk.Close()); err != nil {
		t.Fatal(err)
	}
	<-stored
	if start, end := published(t); start != float64(begin.Unix()) || end != 0 {
		t.Errorf("published %v and %v, want %v and 0", start, end, begin.Unix())
	}
}
