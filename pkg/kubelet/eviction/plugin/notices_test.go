package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics/testutil"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// writes are the calls of NoticeFiles. A call ends when hold is closed, with err.
type writes struct {
	mu   sync.Mutex
	list []string
	err  error
	hold chan struct{}
}

func (w *writes) Write(directory string, notices []debugv1alpha1.PluginNotice) error {
	w.mu.Lock()
	hold := w.hold
	text := directory + ":"
	for i := range notices {
		text += " " + string(notices[i].UID)
	}
	w.list = append(w.list, text)
	w.mu.Unlock()
	if hold != nil {
		<-hold
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// take returns the calls since the last time.
func (w *writes) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.list = nil }()
	return strings.Join(w.list, "; ")
}

func (w *writes) set(f func()) { w.mu.Lock(); defer w.mu.Unlock(); f() }

// asker asks for pods, which may change at any time.
type asker struct {
	scripted
	pods atomic.Pointer[arbiter.Demand]
}

func asking(force bool, uids ...types.UID) *asker {
	a := &asker{}
	a.demand = func(context.Context, *View) (*arbiter.Demand, error) { return a.pods.Load(), nil }
	a.ask(force, uids...)
	return a
}

func (a *asker) ask(force bool, uids ...types.UID) {
	d := &arbiter.Demand{}
	for _, uid := range uids {
		d.Pods = append(d.Pods, arbiter.PodDemand{UID: uid, Reason: "r", Force: force})
	}
	a.pods.Store(d)
}

func asksNotice(p *v1.Pod) { p.Annotations = map[string]string{arbiter.SoftNoticeKey: "true"} }

// newNoticeRig returns a rig with the pods a and b, which opted for notices, and c, which did not.
func newNoticeRig(t *testing.T, p Plugin) (*rig, *writes, *record.FakeRecorder) {
	o, w, events := options(), &writes{}, record.NewFakeRecorder(100)
	o.SoftNoticeDirectory = "/n"
	other := func(p *v1.Pod) { p.Annotations = map[string]string{arbiter.SoftNoticeKey: "false"} }
	r := newRig(t, o, map[string]Plugin{"p": p}, pod("a", asksNotice), pod("b", asksNotice), pod("c", other))
	r.Driver.config.NoticeFiles, r.Driver.config.Recorder = w, events
	return r, w, events
}

func noticed(t *testing.T) float64 {
	v, err := testutil.GetCounterMetricValue(softNotices.WithLabelValues("p"))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (r *rig) notices() (text string) {
	for _, n := range r.List().Notices {
		text += fmt.Sprint(n.Namespace, "/", n.Name, " ", n.Plugins, " ", n.Scope, " ", n.Reason, " ", n.GraceSeconds, ";")
	}
	return text
}

// A pod that opted for notices is given one, and is not evicted: one event, a metric, a file while it lasts. Force
// evicts it.
func TestSoftNotice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := asking(false, "a", "c")
		r, w, events := newNoticeRig(t, p)
		before := noticed(t)
		r.start()
		defer r.stop()
		r.expect("files at the start", w.take(), "/n:; /n: a")
		r.expect("requests", r.requested(), "c")
		r.expect("notices", r.notices(), "ns/name-a [p] force p: r 30;")
		since := r.List().Notices[0].Since
		r.expect("event", <-events.Events, `Warning SoftEvictionNotice Eviction requested by plugin p (scope "force"), the `+
			`pod is given notice and not evicted: p: r`)
		pass(time.Minute)
		r.expect("files of notices that go on", w.take(), "")
		r.expect("counted once", text(noticed(t)-before), "1")
		r.expect("time", text(r.List().Notices[0].Since.Equal(since)), "true")
		p.ask(true, "a")
		pass(5 * time.Second)
		r.expect("forced", text(r.requested(), w.take(), r.notices()), "a /n: ")
		pass(5 * time.Minute)
		p.ask(false, "a")
		pass(5 * time.Second)
		r.expect("not forced", text(r.requested(), w.take()), " /n: a")
		r.expect("another notice", text(noticed(t)-before, len(events.Events)), "2 1")
		r.set(func() { r.pods = r.pods[1:] })
		pass(5 * time.Second)
		r.expect("the pod is gone", text(w.take(), len(events.Events)), "/n: 1")
	})
}

// A pod that is given notice again and again has one event in five minutes: client-go drops the events of a pod
// that has many, and with them the event that it is evicted.
func TestNoticesThatComeAndGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := asking(false)
		r, w, events := newNoticeRig(t, p)
		before := noticed(t)
		r.start()
		defer r.stop()
		for range 120 {
			p.ask(false, "a")
			pass(5 * time.Second)
			r.expect("notice", r.notices(), "ns/name-a [p] force p: r 30;")
			p.ask(false)
			pass(5 * time.Second)
			r.expect("no notice", r.notices(), "")
		}
		r.expect("events, notices", text(len(events.Events), noticed(t)-before), "4 120")
		r.expect("files", text(strings.Count(w.take(), "/n: a")), "120")
		if n := len(r.noticed); n > 1 {
			t.Errorf("%d pods are remembered", n)
		}
	})
}

// Dry run gives no notice.
func TestNoNoticeInDryRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, w, events := newNoticeRig(t, asking(false, "a"))
		o := options()
		o.DryRun = Selector{"p"}
		r.SetOptions(o)
		r.start()
		defer r.stop()
		pass(time.Minute)
		r.expect("files, notices, events", text(w.take(), r.notices(), len(events.Events)), "  0")
	})
}

// The directory may change at any time: the files of the old one are removed.
func TestNoticeDirectoryChanges(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, w, _ := newNoticeRig(t, asking(false, "a"))
		r.start()
		defer r.stop()
		w.take()
		for _, step := range []struct{ directory, want string }{{"/m", "/n:; /m: a"}, {"", "/m:"}, {"/n", "/n: a"}} {
			o := options()
			o.SoftNoticeDirectory = step.directory
			r.SetOptions(o)
			pass(0)
			r.expect("files in "+step.directory, w.take(), step.want)
		}
		o := options()
		o.InTree, o.SoftNoticeDirectory = nil, "/n"
		r.SetOptions(o)
		pass(0)
		r.expect("no plugin is called", text(w.take(), r.notices()), "/n: ")
	})
}

// The files of an old directory are removed in one of the next rounds if that fails at first, also when no plugin is
// called any more.
func TestOldNoticeFilesAreRemovedLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r, w, _ := newNoticeRig(t, asking(false, "a"))
		r.start()
		defer r.stop()
		w.take()
		w.set(func() { w.err = errors.New("disk") })
		o := options()
		o.SoftNoticeDirectory = "/m"
		r.SetOptions(o)
		pass(0)
		r.expect("fails", w.take(), "/n:; /m: a")
		pass(5 * time.Second)
		r.expect("repeated", w.take(), "/n:; /m: a")
		o.SoftNoticeDirectory, o.InTree = "", nil
		r.SetOptions(o)
		pass(0)
		r.expect("none is configured, and no plugin is called", w.take(), "/n:; /m:")
		pass(5 * time.Second)
		r.expect("repeated", w.take(), "/n:; /m:")
		w.set(func() { w.err = nil })
		pass(5 * time.Second)
		r.expect("repeated until it succeeds", w.take(), "/n:; /m:")
		pass(time.Minute)
		r.expect("succeeded", w.take(), "")
	})
}

// A write that fails is repeated in the next round. One that hangs delays no request; what changes meanwhile is
// written after it.
func TestNoticeFilesThatFailOrHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := asking(false, "a")
		r, w, _ := newNoticeRig(t, p)
		w.err = errors.New("disk")
		r.start()
		defer r.stop()
		w.take()
		pass(5 * time.Second)
		r.expect("repeated", w.take(), "/n: a")
		w.set(func() { w.err = nil })
		pass(5 * time.Second)
		r.expect("repeated until it succeeds", w.take(), "/n: a")
		pass(time.Minute)
		r.expect("succeeded", w.take(), "")
		hold := make(chan struct{})
		w.set(func() { w.hold = hold })
		p.ask(false, "a", "b")
		pass(5 * time.Second)
		p.ask(false, "c")
		pass(10 * time.Second)
		r.expect("requests while a write hangs", r.requested(), "c")
		r.expect("one write", w.take(), "/n: a b")
		w.set(func() { w.hold = nil })
		close(hold)
		pass(0)
		r.expect("the last state", w.take(), "/n:")
	})
}

// E10: a plugin that is asked for another pod, since the victim of its hard threshold is blocked, is not given that
// one.
func TestE10BlockedVictimIsNotShown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.Rules.Killers.Forced = snapshot.EvictionAPI
		p := met(0)
		p.top = func(_ context.Context, v *View, _ arbiter.Question) (*arbiter.Reply, error) {
			return &arbiter.Reply{Pods: []types.UID{v.Pods[0].UID}}, nil
		}
		r := newRig(t, o, map[string]Plugin{"p": p}, pod("a"), pod("b"))
		var blocked []types.UID
		r.Driver.config.Blocked = func() []types.UID { r.mu.Lock(); defer r.mu.Unlock(); return blocked }
		r.start()
		defer r.stop()
		pass(5 * time.Second)
		r.expect("victim", r.requested(), "a")
		r.set(func() { blocked = []types.UID{"a"} })
		pass(5 * time.Second)
		r.expect("another victim", r.requested(), "b")
	})
}

// A change of the blocked pods is settled at once, not in the next round. The page says what evicts the pod of a
// request, and that it is blocked.
func TestBlockedPodsAreSettledAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := options()
		o.Rules.MaxInFlight, o.Rules.Killers = 1, arbiter.Killers{Soft: snapshot.EvictionAPI, Forced: snapshot.DeleteAPI}
		p := asking(false, "a", "b")
		r := newRig(t, o, map[string]Plugin{"p": p}, pod("a"), pod("b"))
		var blocked []types.UID
		r.Driver.config.Blocked = func() []types.UID {
			r.mu.Lock()
			defer r.mu.Unlock()
			return blocked
		}
		r.start()
		defer r.stop()
		row := func() string {
			q := r.List().Requests[0]
			return text(q.UID, q.Killer, q.State)
		}
		pass(5 * time.Second)
		r.expect("first", row(), "a EvictionAPI Waiting")
		r.set(func() { blocked = []types.UID{"a"} })
		r.expect("blocked", row(), "a EvictionAPI Blocked")
		r.BlockedChanged()
		pass(0)
		r.expect("the next one, at once", row(), "b EvictionAPI Waiting")
		woken := r.woken
		p.ask(true, "b")
		pass(5 * time.Second)
		r.expect("forced", text(row(), r.woken > woken), "b DeleteAPI Waiting true")
		o.Rules.Killers.Forced = snapshot.PodWorker
		r.SetOptions(o)
		r.set(func() { blocked, woken = []types.UID{"a", "b"}, r.woken })
		pass(0)
		r.expect("another killer", text(row(), r.woken > woken), "b PodWorker Waiting true")
		o.InTree = nil
		r.SetOptions(o)
		r.BlockedChanged()
		pass(time.Minute)
		r.expect("no plugin is called", r.requested(), "")
	})
}
