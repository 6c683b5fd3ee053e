package nodestatus

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/kubernetes/pkg/kubelet/events"
)

func TestHeartbeatPatchesOnlyWhenChangedOrDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		ctx := t.Context()
		u.SyncNow(ctx)
		if n := len(s.sent()); n != 1 {
			t.Fatalf("%d patches after the start, want 1: %v", n, s.sent())
		}
		for range 29 { // 4 min 50 s
			<-time.After(10 * time.Second)
			u.SyncNow(ctx)
		}
		if n := len(s.sent()); n != 1 {
			t.Fatalf("%d patches without a change: %v", n, s.sent())
		}
		<-time.After(10 * time.Second)
		u.SyncNow(ctx)
		if n := len(s.sent()); n != 2 {
			t.Fatalf("%d patches when due", n)
		}
		w.set(func(w *world) { w.memory = true })
		u.SyncNow(ctx)
		if n := len(s.sent()); n != 3 {
			t.Fatalf("%d patches after a change", n)
		}
		if c := condition(s.current(), v1.NodeMemoryPressure); c.Status != v1.ConditionTrue ||
			c.Reason != "KubeletHasInsufficientMemory" {
			t.Errorf("memory pressure %v", c)
		}
	})
}

// After a change or a start, the next report comes after a random interval, later ones after regular intervals.
func TestHeartbeatSpreadsReports(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	tests := []struct {
		changed bool
		last    time.Time
		random  float64
		want    time.Duration
	}{
		{true, time.Now(), 0, -150 * time.Second},
		{true, time.Now(), 0.75, 75 * time.Second},
		{false, time.Time{}, 0, -150 * time.Second},
		{false, time.Now(), 0, 0},
	}
	for _, tt := range tests {
		u.report.last, u.report.random = tt.last, func() float64 { return tt.random }
		if u.spreadNextReport(tt.changed); u.report.delay != tt.want {
			t.Errorf("%+v: delay %v", tt, u.report.delay)
		}
	}
}

func TestHeartbeatMarksVolumesInUse(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	w.inUse = []v1.UniqueVolumeName{"a"}
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	u.SyncNow(t.Context()) // volumes are marked although nothing has changed
	want := [][]v1.UniqueVolumeName{{"a"}, {"a"}}
	if diff := cmp.Diff(want, w.marked); diff != "" {
		t.Errorf("marked (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]v1.UniqueVolumeName{"a"}, s.current().Status.VolumesInUse); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

func TestHeartbeatReportsVolumesAtOnce(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	w.inUse = []v1.UniqueVolumeName{"a"}
	u.SyncNow(t.Context())
	if diff := cmp.Diff([]v1.UniqueVolumeName{"a"}, s.current().Status.VolumesInUse); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

// After a restart, the list of the volume manager is incomplete until it has reconstructed the mounts.
func TestVolumesInUseAreKeptUntilReconstructed(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	w.inUse = []v1.UniqueVolumeName{"a"}
	newUpdater(t, s, w).SyncNow(t.Context())
	w.inUse, w.volumesReconciled = nil, false
	newUpdater(t, s, w).SyncNow(t.Context())
	if diff := cmp.Diff([]v1.UniqueVolumeName{"a"}, s.current().Status.VolumesInUse); diff != "" {
		t.Errorf("reported (-want +got):\n%s", diff)
	}
}

func TestHeartbeatRetries(t *testing.T) {
	oops := apierrors.NewInternalError(errors.New("oops"))
	for failures := range maxTries + 1 {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		if err := u.register(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range failures {
			s.failures["patch"] = append(s.failures["patch"], oops)
		}
		err := u.retry(t.Context(), u.tryHeartbeat)
		if (err == nil) != (failures < maxTries) {
			t.Errorf("%d failures: %v", failures, err)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "update node status exceeds retry count") {
			t.Errorf("error %v", err)
		}
		if want := max(0, failures-1); w.heartbeatFailures != want {
			t.Errorf("%d failures: connections closed %d times, want %d", failures, w.heartbeatFailures, want)
		}
		if want := min(failures, maxTries-1); s.reads != want {
			t.Errorf("%d failures: %d reads from the API server, want %d", failures, s.reads, want)
		}
	}
}

func TestHeartbeatReadsDirectlyWhileListerIsEmpty(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	s.lagging = true
	newUpdater(t, s, w).SyncNow(t.Context())
	if n := len(s.sent()); n != 1 || s.reads != 1 {
		t.Errorf("%d patches, %d reads", n, s.reads)
	}
}

// The lister still has the Node without pressure.
func TestNoSecondTransitionFromStaleLister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		u.SyncNow(t.Context())
		s.lagging, w.memory = true, true
		u.SyncNow(t.Context())
		transition := condition(s.current(), v1.NodeMemoryPressure).LastTransitionTime
		<-time.After(10 * time.Second)
		u.SyncNow(t.Context())
		if got := condition(s.current(), v1.NodeMemoryPressure).LastTransitionTime; !got.Equal(&transition) {
			t.Errorf("transition moved from %v to %v", transition, got)
		}
		if n := w.count("NodeHasInsufficientMemory"); n != 1 {
			t.Errorf("%d events", n)
		}
		if n := len(s.sent()); n != 2 {
			t.Errorf("%d patches", n)
		}
	})
}

// A field changes and changes back while the lister has the Node from before both.
func TestChangeBackWithStaleLister(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	w.inUse = []v1.UniqueVolumeName{"a"}
	u.SyncNow(t.Context())
	s.lagging, w.inUse = true, nil
	u.SyncNow(t.Context())
	w.inUse = []v1.UniqueVolumeName{"a"}
	u.SyncNow(t.Context())
	if diff := cmp.Diff(w.inUse, s.current().Status.VolumesInUse); diff != "" {
		t.Errorf("volumes were marked as reported, but are not (-want +got):\n%s", diff)
	}
}

// After a restore of the API server from a backup, the resource versions are lower than that of the last own write.
func TestOwnWriteIsPreferredForLimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		u.SyncNow(t.Context())
		s.version = 0
		s.edit(func(n *v1.Node) { n.Status.Conditions[0].Status = v1.ConditionTrue })
		time.Sleep(maxOwnWriteAge + time.Second)
		u.SyncNow(t.Context())
		if c := condition(s.current(), v1.NodeMemoryPressure); c.Status != v1.ConditionFalse {
			t.Errorf("memory pressure %v", c)
		}
	})
}

func TestCordonEvents(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	for _, cordoned := range []bool{false, true, true, false, false} {
		u.SyncNow(t.Context())
		s.edit(func(n *v1.Node) { n.Spec.Unschedulable = cordoned })
	}
	u.SyncNow(t.Context())
	if a, b := w.count(events.NodeNotSchedulable), w.count(events.NodeSchedulable); a != 1 || b != 1 {
		t.Errorf("%d cordoned, %d uncordoned: %v", a, b, w.events)
	}
}

func TestPodCIDRFollowsNode(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	s.edit(func(n *v1.Node) { n.Spec.PodCIDRs = []string{"10.0.0.0/24", "fd00::/64"} })
	u.SyncNow(t.Context())
	u.SyncNow(t.Context())
	if diff := cmp.Diff([]string{"10.0.0.0/24,fd00::/64"}, w.cidrUpdates); diff != "" {
		t.Errorf("CIDRs sent to the runtime (-want +got):\n%s", diff)
	}
	w.cidrErr = errors.New("no")
	if changed, err := u.UpdatePodCIDR(t.Context(), "10.9.0.0/24"); !changed || err == nil || w.cidr == "10.9.0.0/24" {
		t.Errorf("changed %v, error %v, remembered %q", changed, err, w.cidr)
	}
}

func TestRequiredLabelsAreRepaired(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	s.edit(func(n *v1.Node) { n.Labels = map[string]string{"theirs": "x"} })
	u.SyncNow(t.Context())
	want := map[string]string{"theirs": "x", v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64"}
	if diff := cmp.Diff(want, s.current().Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

func TestShutdownIsPublished(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	w.set(func(w *world) { w.shutdownErr = errors.New("node is shutting down") })
	u.SyncNow(t.Context())
	c := condition(s.current(), v1.NodeReady)
	if c.Status != v1.ConditionFalse || c.Reason != "KubeletNotReady" || c.Message != "node is shutting down" {
		t.Errorf("ready %v", c)
	}
	if w.count(events.NodeNotReady) != 1 {
		t.Errorf("events %v", w.events)
	}
}

// The report that the node is not Ready does not wait for the version of a runtime that hangs.
func TestHangingRuntimeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		u.SyncNow(t.Context())
		w.set(func(w *world) { w.versionHangs, w.runtimeErr = true, errors.New("it hangs") })
		begin := time.Now()
		u.SyncNow(t.Context())
		if c := ready(s.current()); c.Status != v1.ConditionFalse || !strings.Contains(c.Message, "it hangs") {
			t.Errorf("Ready is %v", c)
		}
		if took := time.Since(begin); took > versionTimeout {
			t.Errorf("reported after %v", took)
		}
	})
}
