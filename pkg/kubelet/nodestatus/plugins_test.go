package nodestatus

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	testingclock "k8s.io/utils/clock/testing"
)

const testCondition v1.NodeConditionType = "node.katalyst.kubewharf.io/MemoryTight"

func report(w *world, list ...PluginCondition) { w.set(func(w *world) { w.pluginConditions = list }) }

func memoryTight(met bool) PluginCondition {
	return NewPluginCondition("MemoryTight", met, []string{"a", "b"})
}

func typesOf(node *v1.Node) (list []v1.NodeConditionType) {
	for _, c := range node.Status.Conditions {
		list = append(list, c.Type)
	}
	return list
}

// pluginConditionsOf returns the plugin conditions among the conditions of a Node, in the order of names.
func pluginConditionsOf(conditions []v1.NodeCondition) (list []PluginCondition) {
	for _, c := range conditions {
		if name, ours := strings.CutPrefix(string(c.Type), "node.katalyst.kubewharf.io/"); ours {
			list = append(list, PluginCondition{name, c.Status == v1.ConditionTrue, c.Reason, c.Message})
		}
	}
	slices.SortFunc(list, func(a, b PluginCondition) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// The condition appears at once, becomes false and is removed with heartbeats. Its transition time changes only with
// its status.
func TestPluginConditionComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		runUpdater(t, u)
		time.Sleep(time.Second) // somewhere between two heartbeats
		start := len(s.sent())
		patches := func() []string { return s.sent()[start:] }

		// True at once, and nothing else is patched.
		began := time.Now()
		report(w, memoryTight(true))
		u.PressureChanged()
		synctest.Wait()
		if len(patches()) != 1 {
			t.Fatalf("patches %v", patches())
		}
		onlyPressure(t, patches()[0], testCondition)
		checkCondition(t, s.current(), v1.ConditionTrue, "EvictionPluginConditionMet", "reported by eviction plugins: a, b",
			began)
		want := []v1.NodeConditionType{
			v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, testCondition, v1.NodeReady,
		}
		if diff := cmp.Diff(want, typesOf(s.current())); diff != "" {
			t.Errorf("conditions (-want +got):\n%s", diff)
		}

		// An unchanged condition is only reported when a report is due.
		time.Sleep(10 * time.Minute)
		if n := len(patches()); n > 3 {
			t.Errorf("%d patches in ten minutes without a change: %v", n, patches())
		}
		checkCondition(t, s.current(), v1.ConditionTrue, "EvictionPluginConditionMet", "reported by eviction plugins: a, b",
			began)
		if c := condition(s.current(), testCondition); time.Since(c.LastHeartbeatTime.Time) > 6*time.Minute {
			t.Errorf("the last heartbeat of the condition was %v ago", time.Since(c.LastHeartbeatTime.Time))
		}

		// False with the next heartbeat, since nothing requests it earlier.
		report(w, memoryTight(false))
		ended := time.Now()
		time.Sleep(11 * time.Second)
		c := condition(s.current(), testCondition)
		if c.Status != v1.ConditionFalse || c.LastTransitionTime.Time.Before(ended.Truncate(time.Second)) ||
			c.Reason != "EvictionPluginConditionNotMet" ||
			c.Message != "no longer reported by eviction plugins: a, b" {
			t.Errorf("condition %v", c)
		}

		report(w)
		time.Sleep(11 * time.Second)
		if slices.Contains(typesOf(s.current()), testCondition) {
			t.Errorf("conditions %v", typesOf(s.current()))
		}
		all := patches()
		if last := all[len(all)-1]; !strings.Contains(last, `{"$patch":"delete","type":"`+string(testCondition)+`"}`) {
			t.Errorf("the last patch does not delete the condition: %s", last)
		}
	})
}

func checkCondition(
	t *testing.T, node *v1.Node, status v1.ConditionStatus, reason, message string, transition time.Time,
) {
	t.Helper()
	c := condition(node, testCondition)
	if c.Status != status || c.Reason != reason || c.Message != message ||
		!c.LastTransitionTime.Time.Equal(transition.Truncate(time.Second)) {
		t.Errorf("condition %v, want %s %s %q since %v", c, status, reason, message, transition)
	}
}

// Conditions whose types only look like ours are not changed, and not part of a patch.
func TestPluginConditionsOfOtherPrefixesAreKept(t *testing.T) {
	theirs := []v1.NodeConditionType{
		"node.katalyst.kubewharf.io", "katalyst.kubewharf.io/MemoryTight", "MemoryTight", v1.NodeNetworkUnavailable,
		"example.com/node.katalyst.kubewharf.io/MemoryTight", "Node.katalyst.kubewharf.io/MemoryTight",
	}
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	s.edit(func(n *v1.Node) {
		for _, kind := range append(theirs, "node.katalyst.kubewharf.io/Stale") {
			c := v1.NodeCondition{Type: kind, Status: v1.ConditionTrue, Reason: "R"}
			n.Status.Conditions = append(n.Status.Conditions, c)
		}
	})
	before := len(s.sent())
	for i, list := range [][]PluginCondition{{memoryTight(true)}, {memoryTight(false)}, {}} {
		report(w, list...)
		if i%2 == 0 {
			u.SyncNow(t.Context())
		} else if err := u.tryPublishPressure(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		node := s.current()
		for _, kind := range theirs {
			if c := condition(node, kind); c != (v1.NodeCondition{Type: kind, Status: v1.ConditionTrue, Reason: "R"}) {
				t.Errorf("with %v: condition %v", list, c)
			}
		}
		if got := pluginConditionsOf(node.Status.Conditions); !slices.Equal(got, list) {
			t.Errorf("plugin conditions %v, want %v", got, list)
		}
	}
	for _, patch := range s.sent()[before:] {
		onlyPressure(t, patch, testCondition, "node.katalyst.kubewharf.io/Stale", v1.NodeReady)
	}
}

// Without plugin conditions the patches are the same bytes as without the setter.
func TestNoPluginConditionsChangeNothing(t *testing.T) {
	variants := map[string]func(*Updater){
		"no setter":   func(u *Updater) { u.reported.pressure = u.reported.pressure[:3] },
		"no function": func(u *Updater) { u.cfg.PluginConditions = nil },
		"none listed": func(*Updater) {},
	}
	sent := map[string][]string{}
	for name, change := range variants {
		clock := testingclock.NewFakeClock(time.Unix(1e9, 0))
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w, func(c *Config) { c.Clock = clock })
		change(u)
		for _, memory := range []bool{false, true, true, false} {
			w.memory = memory
			if err := u.retry(t.Context(), u.tryPublishPressure); err != nil && s.current() != nil {
				t.Fatal(err)
			}
			clock.Step(time.Minute)
			u.SyncNow(t.Context())
			s.edit(func(n *v1.Node) {
				n.Status.Conditions = append([]v1.NodeCondition{{Type: "Theirs", Status: "True"}}, n.Status.Conditions[:4]...)
			})
			clock.Step(10 * time.Minute)
		}
		sent[name] = s.sent()
	}
	if len(sent["no setter"]) < 4 {
		t.Errorf("patches %v", sent["no setter"])
	}
	for name := range variants {
		if diff := cmp.Diff(sent["no setter"], sent[name]); diff != "" {
			t.Errorf("%s: patches (-without the setter +with it):\n%s", name, diff)
		}
	}
}

// A heartbeat that began before plugin conditions were published neither reverts nor repeats that, whether a condition
// appeared or was removed.
func TestHeartbeatDoesNotRevertPluginConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w)
		old := NewPluginCondition("Old", true, nil)
		report(w, old)
		u.SyncNow(t.Context())
		s.lagging = true

		release := make(chan struct{})
		w.set(func(w *world) { w.versionHook = func() { <-release } })
		done := make(chan struct{})
		go func() {
			defer close(done)
			u.SyncNow(t.Context())
		}()
		synctest.Wait()
		w.set(func(w *world) { w.memory = true })
		report(w, memoryTight(true))
		if err := u.retry(t.Context(), u.tryPublishPressure); err != nil {
			t.Fatal(err)
		}
		published, patches := s.current(), len(s.sent())
		want := []PluginCondition{memoryTight(true)}
		if got := pluginConditionsOf(published.Status.Conditions); !slices.Equal(got, want) {
			t.Fatalf("published %v", got)
		}
		time.Sleep(time.Second)
		close(release)
		<-done
		if n := len(s.sent()); n != patches {
			t.Errorf("the heartbeat sent %v", s.sent()[patches:])
		}
		if diff := cmp.Diff(published.Status.Conditions, s.current().Status.Conditions); diff != "" {
			t.Errorf("conditions (-published +after the heartbeat):\n%s", diff)
		}
	})
}

// Plugin conditions, pressure and heartbeats change concurrently. In the end the Node has what was reported last.
func TestPluginConditionsWithPressureConcurrently(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	u := newUpdater(t, s, w)
	u.SyncNow(t.Context())
	var all sync.WaitGroup
	for _, write := range []func(){
		func() { u.SyncNow(t.Context()) },
		func() {
			if err := u.retry(t.Context(), u.tryPublishPressure); err != nil {
				t.Error(err)
			}
		},
	} {
		all.Go(func() {
			for range 50 {
				write()
			}
		})
	}
	all.Go(func() {
		for i := range 200 {
			list := []PluginCondition{NewPluginCondition(fmt.Sprint("C", i%3), i%2 == 0, nil), memoryTight(i%4 < 2)}
			report(w, list[:i%3]...)
			w.set(func(w *world) { w.memory = i%2 == 0 })
		}
	})
	all.Wait()
	last := []PluginCondition{memoryTight(true), NewPluginCondition("Other", false, nil)}
	report(w, last...)
	w.set(func(w *world) { w.memory = true })
	u.SyncNow(t.Context())
	if got := pluginConditionsOf(s.current().Status.Conditions); !slices.Equal(got, last) {
		t.Errorf("plugin conditions %v, want %v", got, last)
	}
	if c := condition(s.current(), v1.NodeMemoryPressure); c.Status != v1.ConditionTrue {
		t.Errorf("memory pressure %v", c)
	}
	if types := typesOf(s.current()); len(sets.New(types...)) != len(types) {
		t.Errorf("conditions %v", types)
	}
}

func TestPluginConditionsAreRateLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := newAPIServer(nil), newWorld()
		u := newUpdater(t, s, w, func(c *Config) { c.Reporting.UpdateFrequency = time.Hour })
		runUpdater(t, u)
		time.Sleep(time.Minute)
		before := len(s.sent())
		for i := range 1000 { // ten seconds of flapping
			report(w, NewPluginCondition("MemoryTight", i%2 == 0, []string{fmt.Sprint(i)}))
			u.PressureChanged()
			time.Sleep(10 * time.Millisecond)
		}
		if n := len(s.sent()) - before; n < 9 || n > 11 {
			t.Errorf("%d patches in ten seconds", n)
		}
		time.Sleep(2 * time.Second)
		if c := condition(s.current(), testCondition); c.Status != v1.ConditionFalse {
			t.Errorf("the last state is not the one published: %v", c)
		}
	})
}

// restorePluginConditions keeps the conditions, as the driver of eviction plugins does. Before it is called, no
// conditions are listed.
func (w *world) restorePluginConditions(c []v1.NodeCondition) { report(w, pluginConditionsOf(c)...) }

// The agent is killed under a plugin condition and started again. Restore is called before each way to write a status,
// so that no version of the Node is without the condition.
func TestPluginConditionIsKeptOverRestart(t *testing.T) {
	for _, path := range []string{"heartbeat", "pressure", "startup", "start", "register"} {
		t.Run(path, func(t *testing.T) {
			s, w := restartedUnderPluginCondition(t)
			u := newUpdater(t, s, w)
			switch path {
			case "heartbeat":
				u.SyncNow(t.Context())
			case "pressure":
				w.memory = true
				if err := u.tryPublishPressure(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			case "startup":
				u.tryReady(t.Context())
			case "start":
				if !u.RestoreAtStart(t.Context(), time.Second) {
					t.Error("not restored")
				}
			case "register":
				if err := u.register(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			u.SyncNow(t.Context())
			if len(w.restored) != 1 {
				t.Errorf("restored %d times", len(w.restored))
			}
		})
	}
}

// restartedUnderPluginCondition returns an API server with the Node of an earlier run that is not Ready and has a
// plugin condition, and the world after the restart. Each version of the Node that is without the condition, or has it
// with another status or transition time, fails the test.
func restartedUnderPluginCondition(t *testing.T) (*apiServer, *world) {
	s, w := newAPIServer(nil), newWorld()
	report(w, memoryTight(true))
	newUpdater(t, s, w).SyncNow(t.Context())
	s.edit(func(n *v1.Node) {
		ready(n).Status = v1.ConditionFalse
		delete(n.Labels, v1.LabelHostname) // so that registration has something to patch
	})
	before := condition(s.current(), testCondition)
	if before.Status != v1.ConditionTrue {
		t.Fatalf("conditions %v", typesOf(s.current()))
	}
	s.onPatch = func() {
		if after := condition(s.node, testCondition); after.Status != v1.ConditionTrue ||
			!after.LastTransitionTime.Equal(&before.LastTransitionTime) {
			t.Errorf("condition %v after %s", after, s.patches[len(s.patches)-1])
		}
	}
	w = newWorld()
	w.onRestore = w.restorePluginConditions
	return s, w
}

// The whole start, with an API server that first fails, so that Restore comes later than RestoreAtStart.
func TestPluginConditionIsKeptOverStartWithoutAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := restartedUnderPluginCondition(t)
		for range 50 {
			s.failures["get"] = append(s.failures["get"], apierrors.NewInternalError(errors.New("oops")))
		}
		u := newUpdater(t, s, w)
		if u.RestoreAtStart(t.Context(), 2*time.Second) {
			t.Error("restored without an answer")
		}
		s.fail("get")
		u.PressureChanged()
		before := len(s.sent())
		runUpdater(t, u)
		time.Sleep(time.Minute)
		if len(s.sent()) == before || len(w.restored) != 1 || ready(s.current()).Status != v1.ConditionTrue {
			t.Errorf("%d patches, restored %d times, %v", len(s.sent())-before, len(w.restored), ready(s.current()))
		}
		// The condition can still go.
		s.mu.Lock()
		s.onPatch = nil
		s.mu.Unlock()
		report(w)
		time.Sleep(11 * time.Second)
		if slices.Contains(typesOf(s.current()), testCondition) {
			t.Errorf("conditions %v", typesOf(s.current()))
		}
	})
}

// An agent without plugins removes the conditions of an earlier run with its first report, and not before it has
// called Restore.
func TestPluginConditionOfAnEarlierRunIsRemoved(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	report(w, memoryTight(true))
	newUpdater(t, s, w).SyncNow(t.Context())
	newUpdater(t, s, newWorld(), func(c *Config) { c.PluginConditions = nil }).SyncNow(t.Context())
	want := []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure, v1.NodeReady}
	if diff := cmp.Diff(want, typesOf(s.current())); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

// The API server may have removed a condition that the lister still has, and the other way round.
func TestPluginConditionsWithStaleLister(t *testing.T) {
	s, w := newAPIServer(nil), newWorld()
	report(w, memoryTight(true))
	newUpdater(t, s, w).SyncNow(t.Context())
	for _, removed := range []bool{true, false} {
		s.deliver()
		s.lagging = true
		s.edit(func(n *v1.Node) {
			n.Status.Conditions = slices.DeleteFunc(n.Status.Conditions, func(c v1.NodeCondition) bool {
				return c.Type == testCondition
			})
			if !removed {
				n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: testCondition, Status: v1.ConditionTrue})
			}
		})
		report(w)
		if !removed {
			report(w, memoryTight(false))
		}
		u := newUpdater(t, s, w)
		u.SyncNow(t.Context())
		if got := pluginConditionsOf(s.current().Status.Conditions); !slices.Equal(got, w.pluginConditions) {
			t.Errorf("removed %v: plugin conditions %v", removed, got)
		}
	}
}

func TestNewPluginCondition(t *testing.T) {
	var many []string
	for i := range 10 {
		many = append(many, fmt.Sprint("p", i))
	}
	const met, notMet = "EvictionPluginConditionMet", "EvictionPluginConditionNotMet"
	for _, tt := range []struct {
		met     bool
		plugins []string
		want    PluginCondition
	}{
		{true, nil, PluginCondition{"C", true, met, "reported by eviction plugins, last before the start of the kubelet"}},
		{true, many[:1], PluginCondition{"C", true, met, "reported by eviction plugins: p0"}},
		{true, many[:8], PluginCondition{
			"C", true, met, "reported by eviction plugins: p0, p1, p2, p3, p4, p5, p6, p7",
		}},
		{true, many, PluginCondition{
			"C", true, met, "reported by eviction plugins: p0, p1, p2, p3, p4, p5, p6, p7 and 2 more",
		}},
		{false, nil, PluginCondition{
			"C", false, notMet, "no longer reported by eviction plugins, last before the start of the kubelet",
		}},
		{false, many[:2], PluginCondition{"C", false, notMet, "no longer reported by eviction plugins: p0, p1"}},
	} {
		if got := NewPluginCondition("C", tt.met, tt.plugins); got != tt.want {
			t.Errorf("%v of %v: %+v, want %+v", tt.met, tt.plugins, got, tt.want)
		}
	}
}
