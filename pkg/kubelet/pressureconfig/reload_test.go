package pressureconfig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
)

// waitLimit is how long a test waits for a change, less than the time after which the file is read without a
// notification.
const waitLimit = pollPeriod - 10*time.Second

// runningReloader is a running reloader with its events and the configurations that it has applied.
type runningReloader struct {
	*testing.T
	file    string
	applied chan *v1alpha1.NodePressureConfiguration
	events  chan string
	clock   clock.Clock
}

func startReloader(t *testing.T, file string, c clock.Clock) *runningReloader {
	t.Helper()
	loaded, err := Load(file, withAPI)
	if err != nil {
		t.Fatal(err)
	}
	f := &runningReloader{T: t, file: file, applied: make(chan *v1alpha1.NodePressureConfiguration, 10), clock: c}
	recorder := record.NewFakeRecorder(10)
	f.events = recorder.Events
	r := &Reloader{
		Loaded: loaded, Apply: func(c *v1alpha1.NodePressureConfiguration) { f.applied <- c },
		Recorder: recorder, NodeRef: &v1.ObjectReference{Kind: "Node", Name: "node"}, Clock: c,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.Run(ctx); close(done) }()
	t.Cleanup(func() { cancel(); <-done })
	return f
}

// expect waits for a configuration with the period.
func (f *runningReloader) expect(period time.Duration) {
	f.Helper()
	select {
	case c := <-f.applied:
		if got := c.MonitoringPeriod.Duration; got != period {
			f.Fatalf("a period of %s is applied, want %s", got, period)
		}
	case <-time.After(waitLimit):
		f.Fatalf("nothing is applied, want a period of %s", period)
	}
}

func (f *runningReloader) expectEvent(parts ...string) {
	f.Helper()
	e := f.nextEvent()
	for _, part := range parts {
		if !strings.Contains(e, part) {
			f.Fatalf("event %q, want %s", e, part)
		}
	}
}

func (f *runningReloader) nextEvent() string {
	f.Helper()
	select {
	case e := <-f.events:
		return e
	case <-time.After(waitLimit):
		f.Fatal("no event")
		return ""
	}
}

func period(d string) string { return header + "monitoringPeriod: " + d + "\n" }

// write replaces a file by renaming. os.WriteFile empties it first, and a busy machine may read it then.
func write(t *testing.T, file, text string) {
	t.Helper()
	beside := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(beside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(beside, file); err != nil {
		t.Fatal(err)
	}
}

// overwrite writes into a file, in one piece, as many bytes as it has.
func overwrite(t *testing.T, file, text string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	f := startReloader(t, file, clock.RealClock{})

	write(t, file, period("2s"))
	f.expect(2 * time.Second)
	f.expectEvent("Normal PressureConfigReloaded", file)

	// Overwritten in place.
	overwrite(t, file, period("3s"))
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
	f.expectEvent("PressureConfigReloaded") // after the gauges are set
	wantGauge(t, lastLoadFailed, 0)
	write(t, file, "half a fi")
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
		overwrite(t, elsewhere, period(fmt.Sprintf("%ds", seconds)))
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
		Loaded: Loaded{File: file}, Apply: func(*v1alpha1.NodePressureConfiguration) { t.Error("applied") },
		Recorder: recorder, Clock: clock.RealClock{},
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
		_, err := parse([]byte(header+strings.Repeat("ä: 1\n", n)), withAPI)
		if text := truncate(err); len(text) > maxEventText+50 || !utf8.ValidString(text) ||
			(len(err.Error()) <= maxEventText) != (text == err.Error()) {
			t.Errorf("%d faults: %q", n, text)
		}
	}
}

// Each setting of eviction plugins takes effect by a reload, without the others.
func TestReloadOfPlugins(t *testing.T) {
	type settings = v1alpha1.EvictionPluginsConfiguration
	duration := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	changes := map[string]func(*settings){
		`remote: ["*"]`:                 func(e *settings) { e.Remote = []string{"*"} },
		"inTree: [memory-growth]":       func(e *settings) { e.InTree = []string{"memory-growth"} },
		"dryRun: [a]":                   func(e *settings) { e.DryRun = []string{"a"} },
		"period: 1m":                    func(e *settings) { e.Period = duration(time.Minute) },
		"callTimeout: 100ms":            func(e *settings) { e.CallTimeout = duration(100 * time.Millisecond) },
		"conditionTransitionPeriod: 1m": func(e *settings) { e.ConditionTransitionPeriod = duration(time.Minute) },
		"burst: 1":                      func(e *settings) { e.Burst = new(int32(1)) },
		"maxInFlight: 1":                func(e *settings) { e.MaxInFlight = new(int32(1)) },
		"maxGracePeriod: 1s":            func(e *settings) { e.MaxGracePeriod = duration(time.Second) },
		"skipAnnotationKeys: [a]":       func(e *settings) { e.SkipAnnotationKeys = []string{"a"} },
		"skipLabelKeys: [a]":            func(e *settings) { e.SkipLabelKeys = []string{"a"} },
		"skipOwnerKinds: [Job]":         func(e *settings) { e.SkipOwnerKinds = []string{"Job"} },
		"forcedKiller: EvictionAPI":     func(e *settings) { e.ForcedKiller = v1alpha1.EvictionAPI },
		"softKiller: DeleteAPI":         func(e *settings) { e.SoftKiller = v1alpha1.DeleteAPI },
		"killerByQoSLevel: {a: PodWorker}": func(e *settings) {
			e.KillerByQoSLevel = map[string]v1alpha1.Killer{"a": v1alpha1.PodWorker}
		},
		"qosLevel: {priorityClasses: {a: reclaimed_cores}}": func(e *settings) {
			e.QoSLevel.PriorityClasses = map[string]v1alpha1.QoSLevel{"a": v1alpha1.ReclaimedCores}
		},
		"authentication: Token":    func(e *settings) { e.Authentication = v1alpha1.TokenAuthentication },
		"taints: {effects: []}":    func(e *settings) { e.Taints.Effects = []v1alpha1.TaintEffect{} },
		"taints: {kubeconfig: /t}": func(e *settings) { e.Taints.Kubeconfig = "/t" },
		"softNoticeDirectory: /n":  func(e *settings) { e.SoftNoticeDirectory = "/n" },
		"settings: {memory-growth: {horizon: 10s}}": func(e *settings) {
			e.Settings.MemoryGrowth.Horizon = duration(10 * time.Second)
		},
	}
	// taints has two fields.
	if fields := reflect.TypeFor[settings]().NumField() + 1; len(changes) != fields {
		t.Errorf("%d of %d settings are changed", len(changes), fields)
	}
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	var got *v1alpha1.NodePressureConfiguration
	r := &Reloader{
		Loaded: Loaded{File: file, Kubelet: withAPI}, Recorder: record.NewFakeRecorder(100),
		Apply: func(c *v1alpha1.NodePressureConfiguration) { got = c }, Clock: clock.RealClock{},
	}
	for text, change := range changes {
		want := v1alpha1.Default()
		change(&want.Plugins.Eviction)
		write(t, file, header+"plugins: {eviction: {"+text+"}}\n")
		r.reload(t.Context())
		if !reflect.DeepEqual(got.Plugins, want.Plugins) || !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", text, got.Plugins, want.Plugins)
		}
	}
}

// A change that needs an API server is rejected in standalone mode: the previous configuration stays in force.
func TestReloadInStandaloneMode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	write(t, file, period("2s"))
	loaded, err := Load(file, standalone)
	if err != nil {
		t.Fatal(err)
	}
	var applied []time.Duration
	recorder := record.NewFakeRecorder(10)
	r := &Reloader{
		Loaded: loaded, Recorder: recorder, Clock: clock.RealClock{},
		Apply: func(c *v1alpha1.NodePressureConfiguration) { applied = append(applied, c.MonitoringPeriod.Duration) },
	}
	for setting, says := range needAPI {
		write(t, file, period("3s")+"plugins: {eviction: {"+setting+"}}\n")
		r.reload(t.Context())
		if len(recorder.Events) != 1 {
			t.Fatalf("%s: %d events", setting, len(recorder.Events))
		}
		event := <-recorder.Events
		for _, want := range append(says, "Warning PressureConfigInvalid", "the previous one stays in force",
			"there is no API server (standalone)") {
			if !strings.Contains(event, want) {
				t.Errorf("%s: %q does not say %s", setting, event, want)
			}
		}
	}
	if len(applied) > 0 || r.Loaded.Configuration().MonitoringPeriod.Duration != 2*time.Second {
		t.Errorf("applied %s; %+v", applied, r.Loaded)
	}
	write(t, file, period("4s")+"plugins: {eviction: {softKiller: PodWorker}}\n")
	r.reload(t.Context())
	if len(applied) != 1 || applied[0] != 4*time.Second || r.Loaded.Kubelet != standalone {
		t.Errorf("applied %s; %+v", applied, r.Loaded)
	}
}

// Directories of plugins take effect at the next start, and the event says so while they differ from those at start.
func TestReloadOfDirectories(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	atStart := period("2s") + "plugins: {directories: [/a]}\n"
	write(t, file, atStart)
	f := startReloader(t, file, clock.RealClock{})
	const nextStart = "; changes of plugins.directories take effect at the next start"
	for _, tc := range []struct {
		text   string
		period time.Duration
		says   bool
	}{
		{period("3s") + "plugins: {directories: [/a, /b]}\n", 3 * time.Second, true},
		{period("4s") + "plugins: {directories: [/a, /b]}\n", 4 * time.Second, true},
		{period("5s"), 5 * time.Second, true},
		{atStart, 2 * time.Second, false},
	} {
		write(t, file, tc.text)
		f.expect(tc.period)
		if e := f.nextEvent(); !strings.Contains(e, "PressureConfigReloaded") || strings.Contains(e, nextStart) != tc.says {
			t.Errorf("%q: event %q", tc.text, e)
		}
	}
	// What would fail the next start is rejected now.
	write(t, file, header+"plugins: {directories: ["+rootDirectory+"/plugins]}\n")
	f.expectEvent("Warning PressureConfigInvalid", "plugins.directories[0]", "must not be, contain, or be inside")
}

// The settings of the decision log take effect at the next start too, and the event says so while they differ.
func TestReloadOfTheDecisionLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pressure.yaml")
	write(t, file, period("2s"))
	f := startReloader(t, file, clock.RealClock{})
	for _, tc := range []struct {
		text   string
		period time.Duration
		says   string
	}{
		{
			period("3s") + "decisionLog: {memory: 16Mi}\n", 3 * time.Second,
			"; changes of decisionLog take effect at the next start",
		},
		{
			period("4s") + "decisionLog: {maxAge: 1h}\nplugins: {directories: [/a]}\n", 4 * time.Second,
			"; changes of plugins.directories and decisionLog take effect at the next start",
		},
		// The default in other words is no change.
		{period("5s") + "decisionLog: {memory: 8192Ki}\n", 5 * time.Second, ""},
		{period("6s"), 6 * time.Second, ""},
	} {
		write(t, file, tc.text)
		f.expect(tc.period)
		if e := f.nextEvent(); !strings.HasSuffix(e, file+tc.says) {
			t.Errorf("%q: event %q, want the end %q", tc.text, e, tc.says)
		}
	}
}
