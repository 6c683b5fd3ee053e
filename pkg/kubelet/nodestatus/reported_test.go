package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodestatus/reported"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

const (
	reportedLabel    = "example.com/near"
	reportedResource = "example.com/slots"
)

// reporters are plugins that report of the Node, and the agent's record of what it has written.
type reporters struct {
	mu        sync.Mutex
	content   merge.Node
	confirmed *merge.Node
	known     bool
	sustained time.Duration
	file      string
	syncs     []ReportedSync
}

func newReporters(t *testing.T) *reporters {
	return &reporters{known: true, sustained: 10 * time.Second, file: filepath.Join(t.TempDir(), "reporter", "node.json")}
}

func (r *reporters) configure(c *Config) {
	c.Reported = Reported{
		Content: func() (ReportedContent, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return ReportedContent{r.content, r.confirmed}, r.known
		},
		Sustained: func() time.Duration {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.sustained
		},
		File: r.file,
		Synchronized: func(result ReportedSync) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.syncs = append(r.syncs, result)
		},
	}
}

func (r *reporters) setSustained(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sustained = d
}

// report changes what plugins report.
func (r *reporters) report(u *Updater, known bool, content merge.Node) {
	r.mu.Lock()
	r.content, r.known = content, known
	r.mu.Unlock()
	u.ReportedChanged()
}

func (r *reporters) last() ReportedSync {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.syncs) == 0 {
		return ReportedSync{Err: errors.New("no comparison yet")}
	}
	return r.syncs[len(r.syncs)-1]
}

func labelled(value string) merge.Node {
	return merge.Node{Labels: map[string]string{reportedLabel: value}}
}

func slots(capacity, allocatable string) merge.Node {
	return merge.Node{
		Capacity:    v1.ResourceList{reportedResource: resource.MustParse(capacity)},
		Allocatable: v1.ResourceList{reportedResource: resource.MustParse(allocatable)},
	}
}

// reportedNode is a Node that an earlier run has registered, with fields of others.
func reportedNode() *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: testNode, UID: "uid", Labels: map[string]string{"theirs.example/a": "x"},
			Annotations: map[string]string{"theirs.example/a": "x"},
		},
		Status: v1.NodeStatus{
			Capacity:    v1.ResourceList{"theirs.example/a": resource.MustParse("8")},
			Allocatable: v1.ResourceList{"theirs.example/a": resource.MustParse("8")},
		},
	}
}

// writes returns the patches that have fields of plugins.
func (s *apiServer) writes() (list []string) {
	for _, patch := range s.sent() {
		if strings.Contains(patch, "example.com/") {
			list = append(list, patch)
		}
	}
	return list
}

// reportedText is what the Node has of plugins: the label, the annotation, capacity and allocatable.
func reportedText(node *v1.Node) string {
	text := func(value string, there bool) string {
		if !there {
			return "-"
		}
		return value
	}
	label, hasLabel := node.Labels[reportedLabel]
	annotation, hasAnnotation := node.Annotations[reportedLabel]
	capacity, hasCapacity := node.Status.Capacity[reportedResource]
	allocatable, hasAllocatable := node.Status.Allocatable[reportedResource]
	return strings.Join([]string{text(label, hasLabel), text(annotation, hasAnnotation),
		text(capacity.String(), hasCapacity), text(allocatable.String(), hasAllocatable)}, " ")
}

func wantReported(t *testing.T, s *apiServer, want string) {
	t.Helper()
	node := s.current()
	if got := reportedText(node); got != want {
		t.Errorf("the Node has %q, want %q", got, want)
	}
	theirs := node.Status.Capacity["theirs.example/a"]
	if node.Labels["theirs.example/a"] != "x" || node.Annotations["theirs.example/a"] != "x" || theirs.Value() != 8 {
		t.Errorf("fields of others: %v %v %v", node.Labels, node.Annotations, node.Status.Capacity)
	}
}

func TestReportedFieldsComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		time.Sleep(3 * time.Second)
		all := slots("1000", "5")
		all.Labels, all.Annotations = map[string]string{reportedLabel: "a"}, map[string]string{reportedLabel: "{}"}
		r.report(u, true, all)
		time.Sleep(1500 * time.Millisecond)
		wantReported(t, s, "a {} 1k 5")
		// Heartbeats leave them as they are, although stock makes allocatable equal to capacity.
		time.Sleep(10 * time.Minute)
		wantReported(t, s, "a {} 1k 5")
		if n := len(s.writes()); n != 1 {
			t.Errorf("%d writes: %q", n, s.writes())
		}
		if last := r.last(); last.Err != nil || last.Requests != 0 || last.Content.Labels[reportedLabel] != "a" {
			t.Errorf("the last comparison: %+v", last)
		}
		r.report(u, true, labelled("a"))
		time.Sleep(1500 * time.Millisecond)
		wantReported(t, s, "a - - -")
		r.report(u, true, merge.Node{})
		time.Sleep(1500 * time.Millisecond)
		wantReported(t, s, "- - - -")
		if data, err := os.ReadFile(r.file); err != nil || !strings.Contains(string(data), `"fields":{}`) {
			t.Errorf("the record is %s, %v", data, err)
		}
		if n := len(s.writes()); n != 3 {
			t.Errorf("%d writes: %q", n, s.writes())
		}
	})
}

// After a restart fields stay until it is known what plugins report, also if the kubelet resets the extended resources
// of its Node. What no plugin reports then is removed.
func TestReportedFieldsSurviveARestart(t *testing.T) {
	s, r := newAPIServer(reportedNode()), newReporters(t)
	run := func(t *testing.T, w *world, scene func(u *Updater)) {
		synctest.Test(t, func(t *testing.T) {
			u := newUpdater(t, s, w, r.configure)
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { runWithReported(ctx, u) })
			time.Sleep(3 * time.Second)
			scene(u)
			cancel()
			running.Wait()
		})
	}
	run(t, newWorld(), func(u *Updater) {
		content := slots("4", "2")
		content.Labels = map[string]string{reportedLabel: "a"}
		r.report(u, true, content)
		time.Sleep(time.Minute)
		wantReported(t, s, "a - 4 2")
	})
	before := len(s.writes())
	w := newWorld()
	w.zeroExtended = true
	r.content, r.known = merge.Node{}, false
	s.edit(func(n *v1.Node) { n.Status.Capacity["gone.example/a"] = resource.MustParse("3") })
	run(t, w, func(u *Updater) {
		time.Sleep(5 * time.Minute)
		if gone := s.current().Status.Capacity["gone.example/a"]; !gone.IsZero() {
			t.Errorf("a resource of a device plugin was not reset: %v", gone)
		}
		if got := reportedText(s.current()); got != "a - 4 2" || len(s.writes()) != before {
			t.Errorf("while the answers are not known: %s, writes %q", got, s.writes()[before:])
		}
		r.report(u, true, slots("4", "2"))
		time.Sleep(1500 * time.Millisecond)
		if got := reportedText(s.current()); got != "- - 4 2" || len(s.writes()) != before+1 {
			t.Errorf("when they are: %s, writes %q", got, s.writes()[before:])
		}
	})
}

// What changes often is written five times at once, then once per interval; the newest value wins.
func TestReportedPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		time.Sleep(3 * time.Second)
		for i := range 300 * 5 {
			r.report(u, true, labelled(fmt.Sprint(i)))
			time.Sleep(200 * time.Millisecond)
		}
		if n := len(s.writes()); n > 36 || n < 30 {
			t.Errorf("%d writes in five minutes", n)
		}
		time.Sleep(11 * time.Second)
		wantReported(t, s, "1499 - - -")
	})
}

// A value that somebody else writes again and again is corrected once per heartbeat.
func TestReportedFieldsOfTwoWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		r.report(u, true, labelled("ours"))
		time.Sleep(3 * time.Second)
		for range 100 {
			s.edit(func(n *v1.Node) { n.Labels[reportedLabel] = "theirs" })
			time.Sleep(time.Second)
		}
		if n := len(s.writes()); n > 12 {
			t.Errorf("%d writes in 100 s: %q", n, s.writes())
		}
		time.Sleep(11 * time.Second)
		wantReported(t, s, "ours - - -")
	})
}

// An API server that refuses the fields accepts the status nevertheless, and is asked again after five minutes.
func TestReportedFieldsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		time.Sleep(3 * time.Second)
		forbidden := apierrors.NewForbidden(v1.Resource("nodes"), testNode, errors.New("by a policy"))
		s.fail("patch", forbidden, forbidden)
		r.report(u, true, labelled("a"))
		time.Sleep(7 * time.Minute)
		if n := w.count(eventReportedRefused); n != 1 {
			t.Errorf("%d events: %v", n, w.events)
		}
		if data, err := os.ReadFile(r.file); err != nil || !strings.Contains(string(data), `"fields":{}`) {
			t.Errorf("what was refused is recorded: %s, %v", data, err)
		}
		if c := condition(s.current(), v1.NodeReady); c.Status != v1.ConditionTrue {
			t.Errorf("the Node is %v", c)
		}
		time.Sleep(5 * time.Minute)
		wantReported(t, s, "a - - -")
	})
}

// What replaces fields that were refused is written soon, and something that is refused again and again costs one
// request per interval.
func TestReportedFieldsInsteadOfRefusedOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		time.Sleep(3 * time.Second)
		refusals := make([]error, 30)
		for i := range refusals {
			refusals[i] = apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Node").GroupKind(), testNode, nil)
		}
		s.mu.Lock()
		s.fail("patch", refusals...)
		s.mu.Unlock()
		for i := range 60 {
			r.report(u, true, labelled(fmt.Sprint(i)))
			time.Sleep(time.Second)
		}
		s.mu.Lock()
		if left := len(s.failures["patch"]); left < 20 {
			t.Errorf("%d requests were refused in a minute", len(refusals)-left)
		}
		s.fail("patch")
		s.mu.Unlock()
		r.report(u, true, labelled("good"))
		time.Sleep(12 * time.Second)
		wantReported(t, s, "good - - -")
		if n := w.count(eventReportedRefused); n != 1 {
			t.Errorf("%d events: %v", n, w.events)
		}
	})
}

func TestReportedFieldsAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		time.Sleep(3 * time.Second)
		down := make([]error, 1000)
		for i := range down {
			down[i] = errors.New("connection refused")
		}
		s.mu.Lock()
		s.fail("patch", down...)
		s.mu.Unlock()
		for i := range 60 {
			r.report(u, true, labelled(fmt.Sprint(i)))
			time.Sleep(time.Second)
		}
		s.mu.Lock()
		s.fail("patch")
		s.mu.Unlock()
		time.Sleep(2 * time.Minute) // the longest back-off so far is 64 s
		wantReported(t, s, "59 - - -")
		if n := len(s.writes()); n != 1 {
			t.Errorf("%d writes: %q", n, s.writes())
		}
	})
}

// Without a record new fields are not written, and those that are recorded change and go.
func TestReportedFieldsWithoutARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		r.report(u, true, labelled("1"))
		time.Sleep(3 * time.Second)
		directory := filepath.Dir(r.file)
		if err := errors.Join(os.RemoveAll(directory), os.WriteFile(directory, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		content := slots("1", "1")
		content.Labels = map[string]string{reportedLabel: "2"}
		r.report(u, true, content)
		time.Sleep(3 * time.Second)
		wantReported(t, s, "2 - - -")
		if n := w.count(eventReportedUnrecorded); n != 1 {
			t.Errorf("%d events: %v", n, w.events)
		}
		if err := os.Remove(directory); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		wantReported(t, s, "2 - 1 1")
	})
}

// On a full disk fields go, and others that are recorded change, without delay.
func TestReportedFieldsGoWithoutARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		both := slots("1", "1")
		both.Labels = map[string]string{reportedLabel: "1"}
		r.report(u, true, both)
		time.Sleep(3 * time.Second)
		directory := filepath.Dir(r.file)
		if err := errors.Join(os.RemoveAll(directory), os.WriteFile(directory, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		r.report(u, true, labelled("1"))
		time.Sleep(2 * time.Second)
		wantReported(t, s, "1 - - -")
		r.report(u, true, labelled("2"))
		time.Sleep(2 * time.Second)
		wantReported(t, s, "2 - - -")
		if n := w.count(eventReportedUnrecorded); n != 0 {
			t.Errorf("%d events: %v", n, w.events)
		}
	})
}

func TestReportedRecordIsDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		if err := os.MkdirAll(filepath.Dir(r.file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.file, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		r.report(u, true, labelled("1"))
		time.Sleep(3 * time.Second)
		wantReported(t, s, "1 - - -")
		if n := w.count(eventReportedRecordRejected); n != 1 {
			t.Errorf("%d events: %v", n, w.events)
		}
		if data, err := os.ReadFile(r.file + ".rejected"); err != nil || string(data) != "x" {
			t.Errorf("the damaged record: %q, %v", data, err)
		}
	})
}

// The lister lags: the write has a conflict, and is repeated on what the API server has.
func TestReportedFieldsAfterAConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		time.Sleep(time.Minute)
		s.mu.Lock()
		s.lagging = true
		s.mu.Unlock()
		s.edit(func(n *v1.Node) { n.Labels["theirs.example/b"] = "y" })
		r.report(u, true, labelled("1"))
		time.Sleep(2 * time.Second)
		wantReported(t, s, "1 - - -")
		if s.current().Labels["theirs.example/b"] != "y" || len(s.writes()) != 1 {
			t.Errorf("labels %v, writes %q", s.current().Labels, s.writes())
		}
		if last := r.last(); last.Err != nil || last.Requests != 2 {
			t.Errorf("%+v", last)
		}
	})
}

// A disk that does not respond costs what plugins report, and no heartbeat.
func TestReportedRecordOnADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		hangs := make(chan struct{})
		u.fields.record.save = func(reported.Record) error { <-hangs; return nil }
		runUpdater(t, u)
		r.report(u, true, labelled("1"))
		time.Sleep(3 * time.Second)
		heartbeat := condition(s.current(), v1.NodeReady).LastHeartbeatTime
		time.Sleep(20 * time.Minute)
		if last := condition(s.current(), v1.NodeReady).LastHeartbeatTime; last.Equal(&heartbeat) {
			t.Error("there are no heartbeats while the disk hangs")
		}
		wantReported(t, s, "- - - -")
		close(hangs)
		time.Sleep(3 * time.Second)
		wantReported(t, s, "1 - - -")
	})
}

// A Node that was created again has none of the fields: they are written and recorded for it.
func TestReportedFieldsOfANewNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		r.report(u, true, labelled("1"))
		time.Sleep(3 * time.Second)
		again := reportedNode()
		again.UID = "again"
		s.mu.Lock()
		s.store(again)
		s.mu.Unlock()
		time.Sleep(11 * time.Second)
		wantReported(t, s, "1 - - -")
		if data, err := os.ReadFile(r.file); err != nil || !strings.Contains(string(data), `"nodeUID":"again"`) {
			t.Errorf("the record is %s, %v", data, err)
		}
	})
}

// Resources of device plugins are those of the kubelet, whatever reporter plugins say.
func TestReportedResourcesOfDevicePlugins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		r.report(u, true, slots("4", "2"))
		time.Sleep(3 * time.Second)
		wantReported(t, s, "- - 4 2")
		w.set(func(w *world) { w.plugins = v1.ResourceList{reportedResource: resource.MustParse("7")} })
		time.Sleep(30 * time.Second)
		wantReported(t, s, "- - 7 7")
		r.report(u, true, merge.Node{})
		time.Sleep(30 * time.Second)
		wantReported(t, s, "- - 7 7")
	})
}

// More fields than a Node should have are not written, and there is one event.
func TestTooManyReportedFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		u := newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		many := merge.Node{Labels: map[string]string{}}
		for i := range 5000 {
			many.Labels[fmt.Sprintf("example.com/%d", i)] = ""
		}
		r.report(u, true, many)
		time.Sleep(20 * time.Minute)
		if n := w.count(eventReportedRefused); n != 1 || len(s.writes()) > 0 {
			t.Errorf("%d events, %d writes", n, len(s.writes()))
		}
		r.report(u, true, labelled("1"))
		time.Sleep(5 * time.Minute)
		wantReported(t, s, "1 - - -")
	})
}

// A field that the agent has removed before it was killed does not come back with the answer of an older checkpoint.
func TestReportedFieldsThatAnEarlierRunHasRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w, r := newAPIServer(reportedNode()), newWorld(), newReporters(t)
		ctx, cancel := context.WithCancel(t.Context())
		u := newUpdater(t, s, w, r.configure)
		var running sync.WaitGroup
		running.Go(func() { runWithReported(ctx, u) })
		for _, content := range []merge.Node{labelled("1"), {}} {
			r.report(u, true, content)
			time.Sleep(3 * time.Second)
		}
		wantReported(t, s, "- - - -")
		before := len(s.writes())
		time.Sleep(15 * time.Second)
		cancel()
		running.Wait()
		r.confirmed = &merge.Node{}
		u = newUpdater(t, s, w, r.configure)
		runUpdater(t, u)
		r.report(u, true, labelled("1"))
		time.Sleep(time.Minute)
		wantReported(t, s, "- - - -")
		r.mu.Lock()
		r.confirmed = nil
		r.mu.Unlock()
		u.ReportedChanged()
		time.Sleep(3 * time.Second)
		wantReported(t, s, "1 - - -")
		if n := len(s.writes()) - before; n != 1 {
			t.Errorf("%d writes: %q", n, s.writes()[before:])
		}
	})
}
