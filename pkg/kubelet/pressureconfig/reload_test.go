package pressureconfig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
)

// waitLimit is how long a test waits for a change, less than the time after which the file is read without a
// notification.
const waitLimit = pollPeriod - 10*time.Second

// runningReloader is a running reloader with its events and the options that it has applied.
type runningReloader struct {
	*testing.T
	file    string
	applied chan eviction.Options
	events  chan string
	clock   clock.Clock
}

func startReloader(t *testing.T, file string, c clock.Clock) *runningReloader {
	t.Helper()
	loaded, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	f := &runningReloader{T: t, file: file, applied: make(chan eviction.Options, 10), clock: c}
	recorder := record.NewFakeRecorder(10)
	f.events = recorder.Events
	r := &Reloader{
		Loaded: loaded, Apply: func(o eviction.Options) { f.applied <- o },
		Recorder: recorder, NodeRef: &v1.ObjectReference{Kind: "Node", Name: "node"}, Clock: c,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// expect waits for options with the period.
func (f *runningReloader) expect(period time.Duration) {
	f.Helper()
	select {
	case o := <-f.applied:
		if o.MonitoringPeriod != period {
			f.Fatalf("a period of %s is applied, want %s", o.MonitoringPeriod, period)
		}
	case <-time.After(waitLimit):
		f.Fatalf("nothing is applied, want a period of %s", period)
	}
}

func (f *runningReloader) expectEvent(parts ...string) {
	f.Helper()
	select {
	case e := <-f.events:
		for _, part := range parts {
			if !strings.Contains(e, part) {
				f.Fatalf("event %q, want %s", e, part)
			}
		}
	case <-time.After(waitLimit):
		f.Fatalf("no event, want %v", parts)
	}
}

func period(d string) string { return header + "monitoringPeriod: " + d + "\n" }

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	f := startReloader(t, file, clock.RealClock{})

	write(t, file, period("2s"))
	f.expect(2 * time.Second)
	f.expectEvent("Normal PressureConfigReloaded", file)

	// Replaced by renaming.
	write(t, file+".new", period("3s"))
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	f.expect(3 * time.Second)
	f.expectEvent("PressureConfigReloaded")
	wantGauge(t, lastLoadFailed, 0)

	// An invalid file is rejected, with one event.
	write(t, file, period("1ms"))
	f.expectEvent("Warning PressureConfigInvalid", "monitoringPeriod", `"1ms"`, "must be from 1s to 5m0s")
	wantGauge(t, lastLoadFailed, 1)

	// Without the file the defaults hold.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	f.expect(10 * time.Second)
	f.expectEvent("Normal PressureConfigReloaded", "defaults")
	wantGauge(t, configHash, 0)
}

func wantGauge(t *testing.T, g *metrics.Gauge, want float64) {
	t.Helper()
	if got, err := testutil.GetGaugeMetricValue(g); err != nil || got != want {
		t.Errorf("%s is %v (%v), want %v", g.Name, got, err, want)
	}
}

// The configuration in force before an error stays in force without being applied again.
func TestRecoveryFromAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	write(t, file, period("2s"))
	f := startReloader(t, file, clock.RealClock{})
	write(t, file, "half a fi")
	f.expectEvent("PressureConfigInvalid", "the file must be an object")
	write(t, file, period("2s"))
	write(t, file, period("4s"))
	f.expect(4 * time.Second)
	wantGauge(t, lastLoadFailed, 0)
	write(t, file, "half a fi")
	f.expectEvent("PressureConfigReloaded")
	f.expectEvent("PressureConfigInvalid")
	write(t, file, period("4s"))
	for gaugeValue(t, lastLoadFailed) != 0 {
		<-time.After(10 * time.Millisecond)
	}
	if len(f.applied) > 0 {
		t.Error("what is in force is applied again")
	}
}

func gaugeValue(t *testing.T, g *metrics.Gauge) float64 {
	t.Helper()
	v, err := testutil.GetGaugeMetricValue(g)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A ConfigMap volume replaces a link to a directory.
func TestReloadFromAConfigMapVolume(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "pressure.yaml"), text)
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", period("2s"))
	file := filepath.Join(dir, "pressure.yaml")
	if err := os.Symlink("..data/pressure.yaml", file); err != nil {
		t.Fatal(err)
	}
	f := startReloader(t, file, clock.RealClock{})
	version("..2", period("3s"))
	f.expect(3 * time.Second)
	if err := os.RemoveAll(filepath.Join(dir, "..1")); err != nil {
		t.Fatal(err)
	}
	version("..3", period("4s"))
	f.expect(4 * time.Second)
}

// A link to a file elsewhere, which is changed there.
func TestReloadOfALinkedFile(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "settings.yaml")
	write(t, elsewhere, period("2s"))
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	if err := os.Symlink(elsewhere, file); err != nil {
		t.Fatal(err)
	}
	f := startReloader(t, file, clock.RealClock{})
	for _, seconds := range []int{3, 4} {
		write(t, elsewhere, period(fmt.Sprintf("%ds", seconds)))
		f.expect(time.Duration(seconds) * time.Second)
	}
}

// The directory need not exist: the file is polled.
func TestReloadWhenTheDirectoryIsCreatedLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "plimsoll")
	file := filepath.Join(dir, "pressure.yaml")
	c := testingclock.NewFakeClock(time.Now())
	f := startReloader(t, file, c)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, file, period("2s"))
	deadline := time.Now().Add(waitLimit)
	for len(f.applied) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the file is never read")
		}
		c.Step(pollPeriod)
		<-time.After(10 * time.Millisecond)
	}
	f.expect(2 * time.Second)
	f.expectEvent("PressureConfigReloaded")
	// From now on the directory is watched: only settleTime must pass on the clock.
	write(t, file, period("3s"))
	for len(f.applied) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the change is never seen")
		}
		c.Step(settleTime / 10)
		<-time.After(time.Millisecond)
	}
	f.expect(3 * time.Second)
}

// Continuous changes in the directory do not prevent the file from being read.
func TestBusyDirectory(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "pressure.yaml")
	f := startReloader(t, file, clock.RealClock{})
	write(t, file, period("2s"))
	deadline := time.Now().Add(waitLimit)
	for len(f.applied) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the file is never read")
		}
		write(t, filepath.Join(dir, "busy"), "x")
		<-time.After(settleTime / 10)
	}
	f.expect(2 * time.Second)
}

// An error is reported once, and again if it is another one.
func TestErrorsAreReportedOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	recorder := record.NewFakeRecorder(10)
	r := &Reloader{
		Loaded: Loaded{File: file}, Apply: func(eviction.Options) { t.Error("applied") }, Recorder: recorder,
		Clock: clock.RealClock{},
	}
	for i, text := range []string{"half", "half", period("1ms"), period("1ms"), period("1ms")} {
		write(t, file, text)
		r.reload(t.Context())
		if got, want := len(recorder.Events), i/2+1; got != min(want, 2) {
			t.Errorf("%d events after %d reads", got, i+1)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	for _, n := range []int{1, 2, maxErrors, maxErrors + 1, 100000} {
		_, err := parse([]byte(header + strings.Repeat("ä: 1\n", n)))
		if text := truncate(err); len(text) > maxEventText+50 || !utf8.ValidString(text) ||
			(len(err.Error()) <= maxEventText) != (text == err.Error()) {
			t.Errorf("%d faults: %q", n, text)
		}
	}
}
