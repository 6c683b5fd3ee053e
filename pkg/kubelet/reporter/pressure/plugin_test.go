package pressure

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// rig is a plugin with a stream.
type rig struct {
	*Plugin
	settings Settings
	cancel   context.CancelFunc
	ended    chan error

	mu   sync.Mutex
	sent [][]merge.Content
}

func newRig(t *testing.T) *rig { return newRigWith(t, func(*Plugin) {}) }

// newRigWith is newRig with something that happens before the stream begins.
func newRigWith(t *testing.T, before func(*Plugin)) *rig {
	r := &rig{settings: Settings{MonitoringPeriod: period, NodeLabels: true}, ended: make(chan error, 1)}
	r.Plugin = New(clock.RealClock{}, func() Settings { r.mu.Lock(); defer r.mu.Unlock(); return r.settings })
	before(r.Plugin)
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() {
		r.ended <- r.ListAndWatch(ctx, func(c []merge.Content) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.sent = append(r.sent, c)
		})
	}()
	return r
}

func (r *rig) round(list ...policy.SignalOutlook) {
	taken := time.Now().Add(-skew)
	for i := range list {
		list[i].Observed = taken
	}
	r.Round(context.Background(), &eviction.Round{Snapshot: &snapshot.Snapshot{Taken: taken},
		Decision: policy.Decision{Outlook: list}})
}

// last waits until the plugin has nothing to do, and returns how much was sent, and the last of it as it is merged.
func (r *rig) last() (messages int, node merge.Node) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	result := merge.Merge([]merge.Report{{Plugin: Name, Contents: r.sent[len(r.sent)-1]}},
		merge.Options{PluginPrefixes: map[string][]string{Name: {Domain}}})
	if len(result.Refusals) > 0 || len(result.Conflicts) > 0 {
		panic(result.Refusals)
	}
	return len(r.sent), result.Node
}

// messages waits until the plugin has nothing to do, and returns how much was sent.
func (r *rig) messages() int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sent)
}

func (r *rig) set(s Settings) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settings = s
}

// TestTheStreamHasEachChange: the stream sends after the first outlook and whenever something changes, by an outlook or
// by time.
// The merge accepts what it sends.
func TestTheStreamHasEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Without an outlook a stream sends at once that there is nothing.
		r := newRigWith(t, func(p *Plugin) { (&rig{Plugin: p}).round(outlook(10*gi, 0, time.Time{})) })
		expect := func(messages int, annotation, label string) {
			t.Helper()
			n, node := r.last()
			if n != messages || node.Annotations[SignalsAnnotation] != annotation || node.Labels[Domain+"/memory"] != label {
				t.Errorf("%d messages, %+v, want %d, %s, %s", n, node, messages, annotation, label)
			}
		}
		calm := `[{"signal":"memory.available","level":"calm","available":"11Gi","threshold":"1Gi","headroom":"50%"}]`
		expect(1, calm, "calm")
		r.round(outlook(10*gi+mi, 0, time.Time{}))
		expect(1, calm, "calm")
		r.round(outlook(10*gi, 5*time.Minute+5*time.Second, time.Time{}))
		timed := func(level, left string) string {
			return `[{"signal":"memory.available","level":"` + level + `","available":"11Gi","threshold":"1Gi",` +
				`"headroom":"50%","growthPerSecond":"33Mi","timeToThreshold":"` + left + `"}]`
		}
		expect(2, timed("calm", "10m"), "calm")
		time.Sleep(5 * time.Second)
		expect(3, timed("near", "5m"), "near")
		time.Sleep(5 * time.Second)
		r.round(outlook(10*gi, 0, time.Time{}))
		expect(3, timed("near", "5m"), "near")
		for range 5 {
			time.Sleep(10 * time.Second)
			r.round(outlook(10*gi, 0, time.Time{}))
		}
		expect(3, timed("near", "5m"), "near")
		time.Sleep(10 * time.Second)
		expect(4, calm, "calm")
		r.set(Settings{MonitoringPeriod: period})
		r.round(outlook(10*gi, 0, time.Time{}))
		expect(5, calm, "")
		// The eviction manager is silent.
		time.Sleep(maxAge)
		expect(5, calm, "")
		time.Sleep(time.Nanosecond)
		expect(6, "", "")
		time.Sleep(time.Hour)
		expect(6, "", "")
		polled, err := r.GetReportContent(t.Context())
		if err != nil || len(polled) != 0 {
			t.Errorf("polled %v, %v", polled, err)
		}
		r.cancel()
		if err := <-r.ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	goleak.VerifyNone(t)
}

// TestLongPeriodsKeepValuesLonger: what is too old depends on the monitoring period.
func TestLongPeriodsKeepValuesLonger(t *testing.T) {
	for period, want := range map[time.Duration]time.Duration{time.Second: 30 * time.Second,
		5 * time.Minute: 15 * time.Minute} {
		if got := (Settings{MonitoringPeriod: period}).maxAge(); got != want {
			t.Errorf("%v: %v, want %v", period, got, want)
		}
	}
}

// TestOnlyRoundsWithAnOutlookAreNeeded: the eviction manager passes on no other round.
func TestOnlyRoundsWithAnOutlookAreNeeded(t *testing.T) {
	p := New(clock.RealClock{}, nil)
	with := &eviction.Round{Decision: policy.Decision{Outlook: []policy.SignalOutlook{}}}
	if p.NeedsRound(&eviction.Round{}) || !p.NeedsRound(with) || p.Name() != Name {
		t.Error("rounds")
	}
	p.Result(t.Context(), nil)
}

// TestLabelsHaveTheWorstSignal: there is one label for each resource.
func TestLabelsHaveTheWorstSignal(t *testing.T) {
	h := &history{now: start}
	var list []policy.SignalOutlook
	for _, sig := range snapshot.AllSignals() {
		o := outlook(4*gi, 0, h.now.Add(-skew))
		switch sig {
		case snapshot.AllocatableMemoryAvailable:
			o = outlook(4*gi, time.Minute, h.now.Add(-skew))
		case snapshot.NodeFsAvailable:
			o = outlook(-1, 0, h.now.Add(-skew))
		default:
		}
		o.Signal = sig
		list = append(list, o)
	}
	h.observe(list...)
	labels := h.labels()
	for name, want := range map[string]string{"memory": "near", "nodefs": "met", "imagefs": "calm", "containerfs": "calm",
		"pid": "calm"} {
		if labels[Domain+"/"+name] != want {
			t.Errorf("%s: %v", name, labels)
		}
	}
	if len(labels) != 5 {
		t.Errorf("%v", labels)
	}
}

// TestTheAnnotationIsSmall: with all signals and the longest values the annotation is within its bound, and has the
// signals in order.
func TestTheAnnotationIsSmall(t *testing.T) {
	h := &history{now: start}
	var list []policy.SignalOutlook
	var names []string
	for _, sig := range snapshot.AllSignals() {
		left := 10 * time.Minute
		list = append(list, policy.SignalOutlook{Signal: sig, Level: policy.LevelCalm, Known: true, TimeToThreshold: &left,
			Observed: h.now.Add(-skew), Available: math.MaxInt64, Capacity: math.MaxInt64, Threshold: 1<<59 + 1,
			Headroom: 1<<58 - 1, Growth: math.MaxFloat64})
		names = append(names, sig.String())
	}
	h.observe(list...)
	contents, err := h.contents(true)
	if err != nil || merge.Validate(contents) != nil {
		t.Fatal(err)
	}
	var annotations map[string]string
	if err := json.Unmarshal(contents[0].Fields[0].Value, &annotations); err != nil {
		t.Fatal(err)
	}
	text := annotations[SignalsAnnotation]
	var got []entry
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, e := range got {
		order = append(order, e.Signal)
		if e.TimeToThreshold == "" || e.GrowthPerSecond == "" || e.Available == "" {
			t.Errorf("%+v", e)
		}
	}
	if len(text) > 2<<10 || !slices.Equal(order, names) {
		t.Errorf("%d bytes: %s", len(text), text)
	}
}
