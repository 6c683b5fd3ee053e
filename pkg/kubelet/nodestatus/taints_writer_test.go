package nodestatus

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/recordfile"
)

const (
	noSchedule = v1.TaintEffectNoSchedule
	noExecute  = v1.TaintEffectNoExecute

	// soon is longer than the time between two comparisons.
	soon = 2 * minTaintInterval
)

var foreignTaint = v1.Taint{Key: "team", Value: "a", Effect: noSchedule}

func forbidden() error {
	return apierrors.NewForbidden(v1.Resource("nodes"), testNode, errors.New("not allowed"))
}

func TestTaintFollowsItsCondition(t *testing.T) {
	withTaints(t, newTaintServer(foreignTaint), func(r *taintRig) {
		r.run()
		r.report(hot(noSchedule))
		r.pass(soon)
		r.expect("taints", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
		r.expect("record", r.onDisk(), "Hot:NoSchedule")
		r.pass(time.Hour)
		r.expect("requests while nothing changes", r.server.requests(), "0 1 1")
		r.report()
		r.pass(soon)
		r.expect("taints afterwards", r.server.now(), "team=a:NoSchedule")
		r.expect("record afterwards", r.onDisk(), "")
		r.pass(time.Hour)
		r.expect("requests", r.server.requests(), "0 2 2")
		if len(r.world.events) > 0 {
			t.Errorf("events %q", r.world.events)
		}
	})
}

// Without Changed the conditions are looked at every 10 s.
func TestTaintsAreComparedPeriodically(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.run()
		r.mu.Lock()
		r.conditions = append(r.conditions, hot(noSchedule))
		r.mu.Unlock()
		r.pass(taintCheckPeriod + soon)
		r.expect("taints", r.server.now(), "Hot:NoSchedule")
	})
}

func TestTaintThatAPersonRemovesIsWrittenAgain(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.run()
		r.report(hot(noSchedule))
		r.pass(time.Minute)
		r.server.set(foreignTaint)
		r.pass(taintCheckPeriod + soon)
		r.expect("taints", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
	})
}

// Effects that a new configuration does not allow any more are removed.
func TestTaintOfEffectThatIsNoLongerAllowed(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.run()
		r.report(hot(noExecute, noSchedule))
		r.pass(soon)
		r.expect("taints", r.server.now(), "Hot:NoExecute Hot:NoSchedule")
		r.report(hot(noSchedule))
		r.pass(soon)
		r.expect("taints", r.server.now(), "Hot:NoSchedule")
		r.expect("record", r.onDisk(), "Hot:NoSchedule")
	})
}

// After a restart the taints stay until the conditions are restored, then as long as they are True.
func TestE16TaintsStayOverARestart(t *testing.T) {
	withTaints(t, newTaintServer(foreignTaint), func(r *taintRig) {
		r.run()
		r.report(hot(noSchedule))
		r.pass(soon)
		r.restart()
		r.pass(time.Hour)
		r.expect("taints while conditions are unknown", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
		r.report(restoredHot())
		r.pass(time.Hour)
		r.expect("taints of the restored condition", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
		r.expect("requests", r.server.requests(), "0 1 1")
		r.report()
		r.pass(soon)
		r.expect("taints when the condition has ended", r.server.now(), "team=a:NoSchedule")
		r.expect("record", r.onDisk(), "")
	})
}

// An agent that is killed between the record and the Node has no taint too many afterwards, and forgets it only after
// it has read the Node.
func TestKilledBetweenRecordAndNode(t *testing.T) {
	for name, carriedOut := range map[string]bool{"carried out": true, "not carried out": false} {
		t.Run(name, func(t *testing.T) {
			withTaints(t, newTaintServer(), func(r *taintRig) {
				r.server.failures, r.server.lost, r.server.lagging = []error{errLost}, carriedOut, true
				r.run()
				r.report(hot(noSchedule))
				r.expect("record", r.onDisk(), "Hot:NoSchedule")
				r.restart()
				r.server.change(func(s *taintServer) { s.lost = false })
				r.report()
				// The lister does not have the taint in either case.
				r.pass(time.Minute)
				r.expect("taints", r.server.now(), "")
				r.expect("record", r.onDisk(), "")
			})
		})
	}
}

func TestE17ForeignTaintsStay(t *testing.T) {
	byHand := v1.Taint{Key: hotTaint(noSchedule).Key, Value: "by-hand", Effect: noSchedule}
	others := []v1.Taint{hotTaint(noExecute), {Key: "node.katalyst.kubewharf.io/Other", Effect: noSchedule}}
	withTaints(t, newTaintServer(others...), func(r *taintRig) {
		r.run()
		r.report(hot(noSchedule, noExecute))
		r.pass(soon)
		r.expect("taints", r.server.now(), "Hot:NoExecute Other:NoSchedule Hot:NoSchedule")
		r.expect("record", r.onDisk(), "Hot:NoSchedule")
		r.report()
		r.pass(soon)
		r.expect("taints of others", r.server.now(), "Hot:NoExecute Other:NoSchedule")

		r.report(hot(noSchedule))
		r.pass(soon)
		r.server.set(byHand)
		r.pass(time.Minute)
		r.expect("record after it was created again by hand", r.onDisk(), "")
		r.report()
		r.pass(time.Minute)
		r.expect("taint created by hand", r.server.now(), "Hot=by-hand:NoSchedule")
	})
}

// A taint that somebody adds while the agent is about to add the same one is that person's.
func TestE17AddedByAnotherMeanwhile(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.server.onPatch = func() {
			r.server.change(func(s *taintServer) { s.onPatch = nil })
			r.server.set(hotTaint(noSchedule))
		}
		r.run()
		r.report(hot(noSchedule))
		r.pass(soon)
		r.expect("record", r.onDisk(), "")
		r.report()
		r.pass(time.Minute)
		r.expect("taints", r.server.now(), "Hot:NoSchedule")
		r.expect("requests", r.server.requests(), "1 1 0")
	})
}

// A taint that a person adds because the API server refuses the agent's is that person's, also after a restart.
func TestE17AddedByHandWhileRefused(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.server.failures = []error{forbidden()}
		r.run()
		r.report(hot(noSchedule))
		r.expect("record", r.onDisk(), "")
		r.server.set(hotTaint(noSchedule))
		r.restart()
		r.report()
		r.pass(time.Minute)
		r.expect("taints", r.server.now(), "Hot:NoSchedule")
	})
}

func TestConflictIsRepeatedAtOnce(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		left := 1
		r.server.onPatch = func() {
			if left--; left >= 0 {
				r.server.set(foreignTaint)
			}
		}
		r.run()
		r.pass(time.Minute)
		start := time.Now()
		r.report(hot(noSchedule))
		r.pass(taintCheckPeriod - time.Since(start))
		r.expect("taints within 10 s", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
		r.expect("requests", r.server.requests(), "1 2 1")
	})
}

// Conflicts without end are an error like another.
func TestConflictsAreBounded(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.server.onPatch = func() { r.server.set(foreignTaint) }
		r.run()
		r.report(hot(noSchedule))
		r.expect("requests of one round", r.server.requests(), fmt.Sprintf("%d %d 0", maxTaintTries, maxTaintTries))
		r.server.change(func(s *taintServer) { s.onPatch = nil })
		r.pass(10 * time.Second)
		r.expect("taints", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
	})
}

// The lister lags behind the writer's own changes: nothing is written twice, and nothing is forgotten.
func TestListerThatLags(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.server.lagging = true
		r.run()
		r.report(hot(noSchedule))
		r.pass(25 * time.Second)
		r.expect("requests", r.server.requests(), "0 1 1")
		// It has lost its watch: the Node is read from time to time.
		r.pass(25 * time.Second)
		r.expect("requests", r.server.requests(), "1 1 1")
		r.server.set()
		r.pass(maxOwnWriteAge + taintCheckPeriod)
		r.expect("taints that a person has removed", r.server.now(), "Hot:NoSchedule")
		r.report()
		r.pass(soon)
		r.expect("taints", r.server.now(), "")
		r.expect("record", r.onDisk(), "")
	})
}

func TestNodeThatIsCreatedAgain(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.run()
		r.report(hot(noSchedule))
		r.pass(soon)
		r.server.change(func(s *taintServer) { s.listed = nil })
		r.pass(time.Minute)
		r.server.create("uid-2", hotTaint(noSchedule))
		r.pass(time.Minute)
		r.expect("record", r.onDisk(), "")
		r.report()
		r.pass(time.Minute)
		r.expect("taints that somebody has added to the new Node", r.server.now(), "Hot:NoSchedule")
	})
}

// A Node that was created again gets its taints, and they are recorded for it.
func TestTaintsOfNodeThatIsCreatedAgain(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.run()
		r.report(hot(noSchedule))
		r.pass(soon)
		r.server.create("uid-2", foreignTaint)
		r.pass(time.Minute)
		r.expect("taints", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
		r.expect("Node of the record", string(r.record.NodeUID), "uid-2")
		r.report()
		r.pass(soon)
		r.expect("taints", r.server.now(), "team=a:NoSchedule")
	})
}

func TestDamagedRecordIsSetAside(t *testing.T) {
	withTaints(t, newTaintServer(hotTaint(noSchedule)), func(r *taintRig) {
		if err := recordfile.Replace(r.config.File, []byte(`{"version":1,"taints":[{"key":"team"}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		r.run()
		r.report(hot(noExecute))
		r.pass(soon)
		r.expect("taints", r.server.now(), "Hot:NoSchedule Hot:NoExecute")
		r.report()
		r.pass(soon)
		r.expect("taints", r.server.now(), "Hot:NoSchedule")
		if _, err := os.Stat(r.config.File + ".rejected"); err != nil {
			t.Error(err)
		}
		if n := r.world.count(eventTaintRecordRejected); n != 1 {
			t.Errorf("%d events in %q", n, r.world.events)
		}
	})
}

// A record that cannot be stored keeps the Node from being changed.
func TestNodeIsNotChangedWithoutRecord(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		if err := os.WriteFile(strings.TrimSuffix(r.config.File, "/taints.json"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r.run()
		r.report(hot(noSchedule))
		r.pass(time.Minute)
		r.expect("taints", r.server.now(), "")
		r.expect("requests", r.server.requests(), "0 0 0")
		if err := os.Remove(strings.TrimSuffix(r.config.File, "/taints.json")); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * maxTaintBackOff)
		r.expect("taints", r.server.now(), "Hot:NoSchedule")
	})
}

func TestNoKubeconfigIsReportedOnce(t *testing.T) {
	withTaints(t, newTaintServer(foreignTaint), func(r *taintRig) {
		r.server.path = ""
		r.run()
		r.pass(time.Hour)
		r.report(hot())
		r.pass(time.Hour)
		r.expect("events without effects", fmt.Sprint(r.world.count(eventTaintsUnavailable)), "0")
		for range 3 {
			r.report(hot(noSchedule))
			r.pass(time.Hour)
			r.report()
			r.pass(time.Hour)
		}
		r.expect("events", fmt.Sprint(r.world.count(eventTaintsUnavailable)), "1")
		r.expect("requests, record", r.server.requests()+" "+r.onDisk(), "0 0 0 none")
		// A kubeconfig file in the configuration takes effect at once.
		r.report(hot(noSchedule))
		r.pass(2 * time.Minute)
		r.server.change(func(s *taintServer) { s.path = "/kubeconfig" })
		r.Changed()
		r.pass(soon)
		r.expect("taints", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
		// When it is taken away again the taint stays, which is reported.
		r.server.change(func(s *taintServer) { s.path = "" })
		r.report()
		r.pass(time.Hour)
		r.expect("taints", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
		r.expect("events", fmt.Sprint(r.world.count(eventTaintsUnavailable)), "2")
	})
}

// A broken kubeconfig file is reported once. It is tried again each minute, and within 10 s when it has changed.
func TestBrokenKubeconfig(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.server.broken = errors.New("kubeconfig file /kubeconfig: no context")
		r.run()
		r.report(hot(noSchedule))
		r.pass(time.Hour)
		r.expect("events", fmt.Sprint(r.world.count(eventTaintsUnavailable)), "1")
		r.server.change(func(s *taintServer) { s.broken = nil }) // it can be read again, and is the same
		r.pass(maxTaintBackOff + soon)
		r.expect("taints", r.server.now(), "Hot:NoSchedule")

		r.server.change(func(s *taintServer) { s.broken = errors.New("broken again") })
		r.report()
		r.pass(time.Hour + soon)
		r.expect("events", fmt.Sprint(r.world.count(eventTaintsUnavailable)), "2")
		r.server.change(func(s *taintServer) { s.broken, s.kubeconfig = nil, 1 })
		r.pass(taintCheckPeriod + soon)
		r.expect("taints", r.server.now(), "")
	})
}

// An API server that refuses taints is reported once, and asked about once a minute.
func TestRefusedTaints(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		for range 200 {
			r.server.failures = append(r.server.failures, forbidden())
		}
		r.run()
		r.report(hot(noSchedule))
		for range 360 {
			r.pass(10 * time.Second)
			r.Changed()
		}
		r.expect("events", fmt.Sprint(r.world.count(eventTaintsUnavailable)), "1")
		if n := r.server.patches; n < 60 || n > 90 {
			t.Errorf("%d requests in an hour", n)
		}
		r.server.change(func(s *taintServer) { s.failures, s.kubeconfig = nil, 1 })
		r.pass(taintCheckPeriod + soon)
		r.expect("taints with another identity", r.server.now(), "Hot:NoSchedule")
		r.expect("record", r.onDisk(), "Hot:NoSchedule")
	})
}

// The answer to a request was lost, and the request was carried out.
func TestLostAnswer(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.server.failures, r.server.lost = []error{errLost}, true
		r.run()
		r.report(hot(noSchedule))
		r.expect("taints", r.server.now(), "Hot:NoSchedule")
		r.pass(time.Minute)
		r.expect("record", r.onDisk(), "Hot:NoSchedule")
		r.expect("requests", r.server.requests(), "0 1 1")
		r.report()
		r.pass(soon)
		r.expect("taints", r.server.now(), "")
		r.expect("record", r.onDisk(), "")
	})
}

func TestTaintBackOff(t *testing.T) {
	for failures, want := range map[int]time.Duration{
		1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 1 << 30: time.Minute,
	} {
		for random, least := range map[float64]time.Duration{0: want, 1: want * 4 / 5} {
			if got := taintBackOff(failures, errLost, random); got != least {
				t.Errorf("after %d errors %v, want %v", failures, got, least)
			}
		}
	}
	for seconds, want := range map[int]time.Duration{0: time.Second, 20: 20 * time.Second, 3600: time.Minute} {
		if got := taintBackOff(1, apierrors.NewTooManyRequests("busy", seconds), 0); got != want {
			t.Errorf("asked for %d s: %v, want %v", seconds, got, want)
		}
	}
}

// In standalone mode nothing is read or written.
func TestNoTaintsInStandaloneMode(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		r.config.View = NewView(ViewConfig{Name: testNode})
		r.run()
		r.report(hot(noSchedule))
		r.pass(time.Hour)
		r.expect("requests, record", r.server.requests()+" "+r.onDisk(), "0 0 0 none")
	})
}

// Conditions of an earlier run are known when the Node was read, or does not exist.
func TestRestoredIsReported(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testNode}}
	for name, s := range map[string]*apiServer{"a Node": newAPIServer(node), "no Node": newAPIServer(nil)} {
		u := newUpdater(t, s, newWorld())
		before := u.Restored()
		if u.RestoreAtStart(t.Context(), time.Second); before || !u.Restored() {
			t.Errorf("%s: restored %v, then %v", name, before, u.Restored())
		}
	}
}
