package nodestatus

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A kubeconfig file of another cluster, which has a Node of the same name: that Node is not changed, and the taints of
// the Node of this agent stay recorded.
func TestKubeconfigOfAnotherCluster(t *testing.T) {
	withTaints(t, newTaintServer(foreignTaint), func(r *taintRig) {
		r.run()
		r.report(hot(noSchedule))
		r.pass(soon)
		r.server.change(func(s *taintServer) {
			s.lagging, s.version = true, 200
			s.storeLocked(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: testNode, UID: "other-cluster"}})
		})
		r.report(hot(noSchedule, noExecute))
		r.pass(time.Hour)
		r.expect("taints of the other Node", r.server.now(), "")
		r.expect("Node of the record", string(r.record.NodeUID), "uid-1")
		r.expectProblem("another Node of the same name")
	})
}

// A disk that takes no record keeps taints from being added, and not from being removed.
func TestTaintIsRemovedWithoutAPlaceForTheRecord(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		other := hot(noSchedule)
		other.Name = "Other"
		r.run()
		r.report(hot(noSchedule), other)
		r.pass(soon)
		r.expect("taints", r.server.now(), "Hot:NoSchedule Other:NoSchedule")
		directory := filepath.Dir(r.config.File)
		if err := os.Rename(directory, directory+".away"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(directory, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r.report(other)
		r.pass(time.Minute)
		r.expect("taints after the end of the first condition", r.server.now(), "Other:NoSchedule")
		r.report()
		r.pass(2 * maxTaintBackOff)
		r.expect("taints after the end of the second condition", r.server.now(), "")
		r.report(hot(noExecute))
		r.pass(time.Hour)
		r.expect("taints without a record", r.server.now(), "")
		r.expectProblem("store the record")
	})
}

// A record that cannot be read for the time being is not given up.
func TestRecordThatCannotBeRead(t *testing.T) {
	withTaints(t, newTaintServer(foreignTaint), func(r *taintRig) {
		r.run()
		r.report(hot(noSchedule))
		r.pass(soon)
		r.stop()
		away := r.config.File + ".away"
		if err := os.Rename(r.config.File, away); err != nil {
			t.Fatal(err)
		}
		// A link to itself is an error of the file system.
		if err := os.Symlink(r.config.File, r.config.File); err != nil {
			t.Fatal(err)
		}
		r.create(r.config.File)
		r.run()
		r.report(hot(noExecute))
		r.pass(time.Minute)
		r.expect("taints without the record", r.server.now(), "team=a:NoSchedule Hot:NoSchedule")
		if err := os.Rename(away, r.config.File); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * maxTaintBackOff)
		r.expect("taints", r.server.now(), "team=a:NoSchedule Hot:NoExecute")
		if n := r.world.count(eventTaintRecordRejected); n != 0 {
			t.Errorf("%d events in %q", n, r.world.events)
		}
	})
}

// An error that persists is reported once, and again after a write that has succeeded.
func TestErrorThatPersistsIsReported(t *testing.T) {
	withTaints(t, newTaintServer(), func(r *taintRig) {
		fail := func(n int) {
			r.server.change(func(s *taintServer) { s.failures = slices.Repeat([]error{errLost}, n) })
		}
		fail(failuresBeforeEvent - 1)
		r.run()
		r.report(hot(noSchedule))
		r.pass(time.Hour)
		r.expect("taints", r.server.now(), "Hot:NoSchedule")
		if n := r.world.count(eventTaintsUnavailable); n != 0 {
			t.Errorf("%d events in %q", n, r.world.events)
		}
		fail(10 * failuresBeforeEvent)
		r.report()
		r.pass(20 * time.Minute)
		r.expectProblem(errLost.Error())
	})
}

// expectProblem expects one event about taints that cannot be changed.
func (r *taintRig) expectProblem(why string) {
	r.t.Helper()
	if n := r.world.count(eventTaintsUnavailable); n != 1 || !strings.Contains(strings.Join(r.world.events, ""), why) {
		r.t.Errorf("%d events in %q, want one with %q", n, r.world.events, why)
	}
}
