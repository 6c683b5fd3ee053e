package nodeshutdown

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/nodeshutdown/plan"
)

// twoGroups have 20 and 10 seconds.
var twoGroups = []plan.Period{{Priority: 1000, Seconds: 10}, {Priority: 0, Seconds: 20}}

func TestShutdown(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.unmounting = 2 * time.Second
		w.add(aPod("a-quick", 0, 30), 1)
		w.add(aPod("a-slow", 0, 30), 5)
		w.add(aPod("deaf", 1000, 5), 60)
		w.Start(w.ctx)
		w.expect("0 grant 30s", "0 lock 1")
		if w.ShutdownStatus() != nil || !w.admits(aPod("new", 0, 0)) {
			t.Error("shutting down before anybody said so")
		}
		w.announce(true)
		if err := w.ShutdownStatus(); err == nil || err.Error() != "node is shutting down" {
			t.Errorf("state %v", err)
		}
		if w.admits(aPod("new", 0, 0)) || w.admits(static(aPod("new", 0, 0))) {
			t.Error("a pod is admitted while the machine goes down")
		}
		ran := static(aPod("ran", 0, 0))
		if w.readmitted[ran.UID] = true; !w.admits(ran) {
			t.Error("a pod that ran before the agent was started is rejected, and fails although the shutdown may be cancelled")
		}
		w.sleep(100)
		w.expect("0 node down=true", "0 kill a-quick 20", "0 kill a-slow 20", "1 stopped a-quick", "5 stopped a-slow",
			"7 unmounted [a-quick a-slow]",
			"7 kill deaf 5", "17 unlock 1", "67 stopped deaf")
		w.toldOf("event")
		for _, uid := range []types.UID{"a-quick", "deaf"} {
			checkFailed(t, w.status[uid])
		}
	})
}

func checkFailed(t *testing.T, status v1.PodStatus) {
	t.Helper()
	const message = "Pod was terminated in response to imminent node shutdown."
	if status.Phase != v1.PodFailed || status.Reason != "Terminated" || status.Message != message ||
		len(status.Conditions) != 1 {
		t.Fatalf("status %+v", status)
	}
	c := status.Conditions[0]
	if c.Type != v1.DisruptionTarget || c.Status != v1.ConditionTrue || c.Reason != v1.PodReasonTerminationByKubelet ||
		c.Message != message {
		t.Errorf("condition %+v", c)
	}
}

func TestSucceededStays(t *testing.T) {
	status := v1.PodStatus{Phase: v1.PodSucceeded}
	failed(aPod("done", 0, 0)).Apply(&status)
	if status.Phase != v1.PodSucceeded || status.Reason != "Terminated" {
		t.Errorf("status %+v", status)
	}
}

// A node without periods does nothing, not even look for a login manager.
func TestSwitchedOff(t *testing.T) {
	play(t, nil, func(w *world) {
		w.Start(w.ctx)
		w.sleep(5)
		w.expect()
		if w.ShutdownStatus() != nil || !w.admits(aPod("new", 0, 0)) {
			t.Error("shutting down")
		}
	})
}

// Volumes that stay mounted cost their group's time and no more.
func TestVolumesAreAwaited(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.unmounting = time.Hour
		w.add(aPod("low", 0, 3), 3)
		w.add(aPod("high", 5000, 3), 3)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(40)
		w.expect("0 grant 30s", "0 lock 1", "0 node down=true", "0 kill low 3", "3 stopped low", "20 kill high 3",
			"23 stopped high", "30 unlock 1")
	})
}

// A shutdown that is cancelled spares the pods whose turn has not come, and starts those again that belong to the node.
func TestCancelledInTheMiddle(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(aPod("plain", 0, 30), 5)
		ds := w.add(ofDaemonSet(aPod("daemon", 0, 30)), 5)
		w.add(static(aPod("static", 0, 30)), 1)
		w.add(static(aPod("spared", 1000, 30)), 1)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(2)
		if !w.RestartsAfterShutdown(ds) {
			t.Error("a pod of a DaemonSet does not return")
		}
		w.announce(false)
		if w.ShutdownStatus() != nil || !w.admits(aPod("new", 0, 0)) {
			t.Error("still shutting down")
		}
		w.sleep(100)
		w.expect("0 grant 30s", "0 lock 1", "0 node down=true", "0 kill daemon 20", "0 kill plain 20", "0 kill static 20",
			"1 stopped static",
			"2 lock 2", "2 unlock 1", "2 node down=false", "2 restart [daemon static]")
		w.toldOf("event", "cancellation")
		for _, uid := range []types.UID{"daemon", "static"} {
			if status := w.status[uid]; status.Phase != v1.PodRunning || status.Reason != "" || len(status.Conditions) > 0 {
				t.Errorf("%s: %+v", uid, status)
			}
		}
		// It is still terminating; what comes after that is another life.
		if !w.RestartsAfterShutdown(ds) {
			t.Error("forgotten while it is being stopped")
		}
		w.PodStopped(ds.UID)
		if w.RestartsAfterShutdown(ds) {
			t.Error("returns for ever")
		}
		checkFailed(t, w.status["plain"])
	})
}

// Stock closes the lock of the first shutdown again when it is cancelled: by then its number may be another file's.
// That no lock is closed twice is checked at the end of every scenario.
func TestCancelledAfterwardsThenAgain(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(static(aPod("static", 0, 30)), 1)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(10)
		w.expect("0 grant 30s", "0 lock 1", "0 node down=true", "0 kill static 20", "1 stopped static",
			"1 unmounted [static]", "1 unlock 1")
		w.announce(false)
		w.expect("10 lock 2", "10 node down=false", "10 restart [static]")
		w.add(aPod("plain", 0, 30), 1)
		w.announce(true)
		w.sleep(10)
		w.expect("10 node down=true", "10 kill plain 20", "11 stopped plain", "11 unmounted [plain]", "11 unlock 2")
		w.toldOf("event", "cancellation", "event")
	})
}

// Said twice it is done once; said again after the pods are stopped, it is done for those that have come since, and
// those stopped the first time are not forgotten.
func TestAnnouncedTwice(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(static(aPod("static", 0, 30)), 5)
		w.Start(w.ctx)
		w.announce(true)
		w.announce(true)
		w.sleep(10)
		w.expect("0 grant 30s", "0 lock 1", "0 node down=true", "0 kill static 20", "5 stopped static",
			"5 unmounted [static]", "5 unlock 1")
		w.add(ofDaemonSet(aPod("daemon", 0, 30)), 1)
		w.announce(true)
		w.sleep(10)
		w.expect("10 node down=true", "10 kill daemon 20", "11 stopped daemon", "11 unmounted [daemon]")
		w.announce(false)
		w.expect("20 lock 2", "20 node down=false", "20 restart [static daemon]")
	})
}

// A cancellation of nothing takes a new lock before the old one is given back, so that there always is one.
func TestCancelledWithoutShutdown(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.announce(false)
		w.expect("0 grant 30s", "0 lock 1", "0 lock 2", "0 unlock 1", "0 node down=false")
	})
}

func TestEndOfTheAgentGivesTheLockBack(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(aPod("plain", 0, 30), 20)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(1)
		w.end()
		w.expect("0 grant 30s", "0 lock 1", "0 node down=true", "0 kill plain 20", "1 unlock 1")
		if kept, err := readTimes(w.cfg.StateFile); err != nil || kept.StartTime.IsZero() || !kept.EndTime.IsZero() {
			t.Errorf("kept %+v, error %v", kept, err)
		}
	})
}

// A pod whose end somebody else has asked for keeps the status that it gets for that.
func TestOnlyTheShutdownLetsReturn(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		evicted := w.add(static(aPod("evicted", 0, 30)), 1)
		w.terminating["evicted"] = true
		w.Start(w.ctx)
		w.announce(true)
		if w.RestartsAfterShutdown(evicted) {
			t.Error("an evicted pod returns")
		}
		w.sleep(2)
		if status := w.status["evicted"]; status.Phase != v1.PodRunning || len(status.Conditions) > 0 {
			t.Errorf("the shutdown has put an end to all further lives of a static pod: %+v", status)
		}
		w.announce(false)
		if slices.Contains(w.did, "2 restart [evicted]") {
			t.Error("an evicted pod is started again")
		}
	})
}

// A pod that its source drops before it has begun ends without a clean-up: nobody says that it is stopped.
func TestDroppedMeanwhile(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		pod := w.add(static(aPod("static", 0, 30)), 1)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(2)
		w.set(func() { w.terminating = nil })
		w.announce(false)
		if w.RestartsAfterShutdown(pod) {
			t.Error("the next pod with this UID would return")
		}
	})
}

// A deletion that comes while the pod is stopped for the shutdown has the last word.
func TestDeletedMeanwhile(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		pod := w.add(ofDaemonSet(aPod("daemon", 0, 30)), 5)
		w.Start(w.ctx)
		w.announce(true)
		deleted := pod.DeepCopy()
		deleted.DeletionTimestamp = &deleted.CreationTimestamp
		if w.RestartsAfterShutdown(deleted) || !w.RestartsAfterShutdown(pod) {
			t.Error("a deletion does not count")
		}
	})
}
