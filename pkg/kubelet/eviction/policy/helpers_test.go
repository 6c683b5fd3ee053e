package policy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const (
	mi = int64(1) << 20
	gi = int64(1) << 30
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// wallTime converts a time of the monotonic clock to wall time. They differ by much, so that tests fail if a time of
// one clock is compared with a time of the other.
func wallTime(t time.Time) time.Time { return t.Add(-1000 * time.Hour) }

// spec describes a pod and its usage; a negative usage is an absent one.
type spec struct {
	name          string
	priority      int32
	request       int64
	storage       int64
	memory        int64
	cache         int64 // the part of memory that is page cache; without it nothing is known of that
	disk          int64
	logs          int64
	inodes        int64
	pids          int64
	noStats       bool
	grace         *int64
	static        bool
	terminatingIn time.Duration
}

func (s spec) object() *v1.Pod {
	requests := v1.ResourceList{}
	if s.request > 0 {
		requests[v1.ResourceMemory] = *resource.NewQuantity(s.request, resource.BinarySI)
	}
	if s.storage > 0 {
		requests[v1.ResourceEphemeralStorage] = *resource.NewQuantity(s.storage, resource.BinarySI)
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: "ns", UID: types.UID(s.name),
			Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			Priority:                      &s.priority,
			TerminationGracePeriodSeconds: s.grace,
			Containers:                    []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{Requests: requests}}},
		},
	}
	if s.static {
		pod.Annotations["kubernetes.io/config.source"] = "file"
	}
	return pod
}

func (s spec) pod(now time.Time) snapshot.Pod {
	p := snapshot.Pod{Facts: snapshot.NewFacts(s.object(), true), Images: snapshot.Unknown}
	if s.terminatingIn != 0 {
		p.Terminating = &snapshot.Termination{Deadline: now.Add(s.terminatingIn)}
	}
	if s.noStats {
		return p
	}
	memory := bytesOrUnknown(s.memory)
	anonymous := snapshot.Bytes(snapshot.Unknown)
	if s.cache > 0 {
		anonymous = snapshot.Bytes(s.memory - s.cache)
	}
	p.Usage = &snapshot.Usage{
		Memory: memory, AnonymousMemory: anonymous, PIDs: snapshot.PIDs(s.pids), LocalStorage: snapshot.Unknown,
		Containers: []snapshot.ContainerUsage{{
			Name: "c", Memory: memory,
			WritableLayer: snapshot.FsUsage{Bytes: bytesOrUnknown(s.disk), Inodes: snapshot.Inodes(s.inodes)},
			Logs:          snapshot.FsUsage{Bytes: bytesOrUnknown(s.logs), Inodes: snapshot.Unknown},
		}},
	}
	return p
}

func bytesOrUnknown(n int64) snapshot.Bytes { return snapshot.Bytes(max(n, snapshot.Unknown)) }

func threshold(sig snapshot.Signal, amount string) Threshold {
	q := resource.MustParse(amount)
	return Threshold{Signal: sig, Value: evictionapi.ThresholdValue{Quantity: &q}}
}

func soft(t Threshold, grace time.Duration) Threshold {
	t.Soft, t.GracePeriod = true, grace
	return t
}

func reclaiming(t Threshold, amount string) Threshold {
	q := resource.MustParse(amount)
	t.MinReclaim = &evictionapi.ThresholdValue{Quantity: &q}
	return t
}

func defaultTiming() Timing {
	c := v1alpha1.Default()
	return Timing{
		Period: c.MonitoringPeriod.Duration, KillTime: c.Eviction.KillTime.Duration,
		Settling: c.Eviction.Settling.Duration, Patience: c.Eviction.Patience.Duration,
	}
}

func rulesOf(thresholds ...Threshold) *Rules {
	return &Rules{Thresholds: thresholds, PressureTransitionPeriod: 5 * time.Minute, MaxPodGracePeriodSeconds: 60,
		Timing: defaultTiming()}
}

func layoutOf(dedicated, split bool) snapshot.Layout {
	return snapshot.Layout{Known: true, DedicatedImageFs: dedicated, SplitContainerFs: split}
}

// world is a node that a test moves through time.
type world struct {
	*testing.T
	now     time.Time
	rules   *Rules
	state   State
	signals map[snapshot.Signal]snapshot.Observation
	layout  snapshot.Layout
	pods    []spec
	flight  []snapshot.InFlight
	release time.Time
	reclaim []snapshot.Reclaim
	silent  bool
	awaited bool
	// requests are those of plugins.
	requests []snapshot.Request
}

func newWorld(t *testing.T, rules *Rules, pods ...spec) *world {
	return &world{T: t, now: start, rules: rules, pods: pods, layout: layoutOf(false, false),
		signals: map[snapshot.Signal]snapshot.Observation{}}
}

func (w *world) available(sig snapshot.Signal, amount int64) *world {
	w.signals[sig] = snapshot.Observation{Available: amount, Capacity: 32 * gi}
	return w
}

func (w *world) missing(sig snapshot.Signal) *world {
	delete(w.signals, sig)
	return w
}

func (w *world) snapshot() *snapshot.Snapshot {
	s := &snapshot.Snapshot{
		Taken: w.now, WallTime: wallTime(w.now), Signals: snapshot.Unobserved(), Layout: w.layout, InFlight: w.flight,
		LastRelease: w.release, Reclaims: w.reclaim, RuntimeSilent: w.silent, PodsAwaited: w.awaited,
		Requests: w.requests,
	}
	for sig, o := range w.signals {
		s.Signals[sig] = o
	}
	for _, p := range w.pods {
		s.Pods = append(s.Pods, p.pod(w.now))
	}
	return s
}

// after lets time pass and decides, from a state that was encoded and decoded.
func (w *world) after(d time.Duration) Decision {
	w.now = w.now.Add(d)
	var decision Decision
	decision, w.state = Decide(w.snapshot(), w.rules, recoded(w, w.state))
	return decision
}

func names(victims []Victim) []string {
	list := []string{}
	for _, v := range victims {
		list = append(list, v.Pod.Name)
	}
	return list
}

// limitVictims returns the victims that exceed a limit of their own, thresholdVictims those of thresholds.
func limitVictims(victims []Victim) []Victim     { return ofKind(victims, true) }
func thresholdVictims(victims []Victim) []Victim { return ofKind(victims, false) }

func ofKind(victims []Victim, limit bool) []Victim {
	return slices.DeleteFunc(slices.Clone(victims),
		func(v Victim) bool { return (v.Cause.Kind == LocalStorageLimit) != limit })
}

func (w *world) evicts(d Decision, want ...string) {
	w.Helper()
	if got := names(thresholdVictims(d.Victims)); fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("victims %v, want %v; needs: %+v", got, want, d.Needs)
	}
}

func (w *world) outcome(d Decision, want Outcome) {
	w.Helper()
	if len(d.Needs) == 0 || d.Needs[0].Outcome != want {
		w.Errorf("needs %+v, want outcome %s", d.Needs, want)
	}
}

func (w *world) condition(d Decision, t v1.NodeConditionType, want bool) {
	w.Helper()
	if got := d.Condition(t); got.True != want {
		w.Errorf("condition %s is %v, want %v", t, got.True, want)
	}
}
