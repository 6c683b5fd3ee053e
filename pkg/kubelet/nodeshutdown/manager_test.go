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
		w.unmountTime = 2 * time.Second
		w.add(aPod("a-quick", 0, 30), 1)
		w.add(aPod("a-slow", 0, 30), 5)
		w.add(aPod("overdue", 1000, 5), 60)
		w.Start(w.ctx)
		w.expect("0 delay 30s", "0 lock 1")
		if w.ShutdownStatus() != nil || !w.admits(aPod("new", 0, 0)) {
			t.Error("shutting down before the announcement")
		}
		w.announce(true)
		if err := w.ShutdownStatus(); err == nil || err.Error() != "node is shutting down" {
			t.Errorf("state %v", err)
		}
		if w.admits(aPod("new", 0, 0)) || w.admits(static(aPod("new", 0, 0))) {
			t.Error("a pod is admitted during the shutdown")
		}
		ran := static(aPod("ran", 0, 0))
		if w.readmitted[ran.UID] = true; !w.admits(ran) {
			t.Error("a pod that ran before the agent was started is rejected, and fails although the shutdown may be cancelled")
		}
		w.sleep(100)
		w.expect("0 node down=true", "0 kill a-quick 20", "0 kill a-slow 20", "1 stopped a-quick", "5 stopped a-slow",
			"7 unmounted [a-quick a-slow]",
			"7 kill overdue 5", "17 unlock 1", "67 stopped overdue")
		w.expectEvents("event")
		for _, uid := range []types.UID{"a-quick", "overdue"} {
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

func TestSucceededPodStaysSucceeded(t *testing.T) {
	status := v1.PodStatus{Phase: v1.PodSucceeded}
	failedDisruption(aPod("done", 0, 0)).Apply(&status)
	if status.Phase != v1.PodSucceeded || status.Reason != "Terminated" {
		t.Errorf("status %+v", status)
	}
}

// Without periods the manager does nothing, and does not connect to logind.
func TestWithoutPeriods(t *testing.T) {
	play(t, nil, func(w *world) {
		w.Start(w.ctx)
		w.sleep(5)
		w.expect()
		if w.ShutdownStatus() != nil || !w.admits(aPod("new", 0, 0)) {
			t.Error("shutting down")
		}
	})
}

// Volumes that stay mounted delay the next group until the period of their group is over, not longer.
func TestWaitForUnmountIsBounded(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.unmountTime = time.Hour
		w.add(aPod("low", 0, 3), 3)
		w.add(aPod("high", 5000, 3), 3)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(40)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 kill low 3", "3 stopped low", "20 kill high 3",
			"23 stopped high", "30 unlock 1")
	})
}

// A pod that the runtime stops late, after max(10 s, 1.5 × grace period), has the time of its group all the same: the
// pods of higher priority run as long, and the lock is held.
func TestOverduePodHasTheTimeOfItsGroup(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		// It is overdue after 13.5 s, and is looked at each second from then on; times are rounded.
		w.add(aPod("late", 0, 9), 16)
		w.add(aPod("important", 1000, 2), 1)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(40)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 kill late 9", "16 stopped late", "17 unmounted [late]",
			"17 kill important 2", "18 stopped important", "18 unmounted [important]", "18 unlock 1")
	})
}

// After a cancellation the remaining groups are not stopped, and stopped pods that restart with the node are started.
func TestCancelledInTheMiddle(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(aPod("plain", 0, 30), 5)
		ds := w.add(ofDaemonSet(aPod("daemon", 0, 30)), 5)
		w.add(static(aPod("static", 0, 30)), 1)
		w.add(static(aPod("not-stopped", 1000, 30)), 1)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(2)
		if !w.RestartsAfterShutdown(ds) {
			t.Error("a pod of a DaemonSet does not restart")
		}
		w.announce(false)
		if w.ShutdownStatus() != nil || !w.admits(aPod("new", 0, 0)) {
			t.Error("still shutting down")
		}
		w.sleep(100)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 kill daemon 20", "0 kill plain 20", "0 kill static 20",
			"1 stopped static",
			"2 lock 2", "2 unlock 1", "2 node down=false", "2 restart [daemon static]")
		w.expectEvents("event", "cancellation")
		for _, uid := range []types.UID{"daemon", "static"} {
			if status := w.status[uid]; status.Phase != v1.PodRunning || status.Reason != "" || len(status.Conditions) > 0 {
				t.Errorf("%s: %+v", uid, status)
			}
		}
		// The pod is still terminating. A later pod with the same UID is a new instance.
		if !w.RestartsAfterShutdown(ds) {
			t.Error("removed while it is terminating")
		}
		w.PodStopped(ds.UID)
		if w.RestartsAfterShutdown(ds) {
			t.Error("not removed when it has stopped")
		}
		checkFailed(t, w.status["plain"])
	})
}

// After a cancellation stock closes the lock of the first shutdown again, although its file descriptor may belong to
// another file by then. play checks after each scenario that each lock is closed once.
func TestCancelledAfterwardsThenAgain(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(static(aPod("static", 0, 30)), 1)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(10)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 kill static 20", "1 stopped static",
			"1 unmounted [static]", "1 unlock 1")
		w.announce(false)
		w.expect("10 lock 2", "10 node down=false", "10 restart [static]")
		w.add(aPod("plain", 0, 30), 1)
		w.announce(true)
		w.sleep(10)
		w.expect("10 node down=true", "10 kill plain 20", "11 stopped plain", "11 unmounted [plain]", "11 unlock 2")
		w.expectEvents("event", "cancellation", "event")
	})
}

// A second announcement while pods are being stopped has no effect. After that it stops the pods that were added since;
// a cancellation restarts the pods of both.
func TestAnnouncedTwice(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(static(aPod("static", 0, 30)), 5)
		w.Start(w.ctx)
		w.announce(true)
		w.announce(true)
		w.sleep(10)
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 kill static 20", "5 stopped static",
			"5 unmounted [static]", "5 unlock 1")
		w.add(ofDaemonSet(aPod("daemon", 0, 30)), 1)
		w.announce(true)
		w.sleep(10)
		w.expect("10 node down=true", "10 kill daemon 20", "11 stopped daemon", "11 unmounted [daemon]")
		w.announce(false)
		w.expect("20 lock 2", "20 node down=false", "20 restart [static daemon]")
	})
}

// A cancellation without a shutdown changes nothing: the lock is held.
func TestCancelledWithoutShutdown(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.Start(w.ctx)
		w.announce(false)
		w.expect("0 delay 30s", "0 lock 1")
		w.expectEvents()
	})
}

func TestStopOfTheAgentReleasesTheLock(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		w.add(aPod("plain", 0, 30), 20)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(1)
		w.stopAgent()
		w.expect("0 delay 30s", "0 lock 1", "0 node down=true", "0 kill plain 20", "1 unlock 1")
		stored, err := readTimes(w.cfg.StateFile)
		if err != nil || stored.StartTime.IsZero() || !stored.EndTime.IsZero() {
			t.Errorf("stored %+v, error %v", stored, err)
		}
	})
}

// A pod that is terminating for another reason keeps the status for that reason, and does not restart.
func TestPodThatIsTerminatingAlready(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		evicted := w.add(static(aPod("evicted", 0, 30)), 1)
		w.terminating["evicted"] = true
		w.Start(w.ctx)
		w.announce(true)
		if w.RestartsAfterShutdown(evicted) {
			t.Error("an evicted pod restarts")
		}
		w.sleep(2)
		if status := w.status["evicted"]; status.Phase != v1.PodRunning || len(status.Conditions) > 0 {
			t.Errorf("the shutdown fails a static pod, which ends its later instances: %+v", status)
		}
		w.announce(false)
		if slices.Contains(w.calls, "2 restart [evicted]") {
			t.Error("an evicted pod is restarted")
		}
	})
}

// PodStopped is not called for a pod that its source removes before its worker has begun.
func TestPodRemovedBeforeItsWorkerBegan(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		pod := w.add(static(aPod("static", 0, 30)), 1)
		w.Start(w.ctx)
		w.announce(true)
		w.sleep(2)
		w.set(func() { w.terminating = nil })
		w.announce(false)
		if w.RestartsAfterShutdown(pod) {
			t.Error("the next pod with this UID would be restarted")
		}
	})
}

// A pod that is deleted while it is stopped for the shutdown does not restart.
func TestDeletedDuringTheShutdown(t *testing.T) {
	play(t, twoGroups, func(w *world) {
		pod := w.add(ofDaemonSet(aPod("daemon", 0, 30)), 5)
		w.Start(w.ctx)
		w.announce(true)
		deleted := pod.DeepCopy()
		deleted.DeletionTimestamp = &deleted.CreationTimestamp
		if w.RestartsAfterShutdown(deleted) || !w.RestartsAfterShutdown(pod) {
			t.Error("the deletion is ignored")
		}
	})
}

// A pod of a DaemonSet that is still terminating when the shutdown is announced again restarts nevertheless: it is
// terminating only because of the shutdown.
func TestAnnouncedAgainWhileAPodIsTerminating(t *testing.T) {
	for name, cancelled := range map[string]bool{"after the period of its group": false, "after a cancellation": true} {
		t.Run(name, func(t *testing.T) {
			play(t, twoGroups, func(w *world) {
				ds := w.add(ofDaemonSet(aPod("daemon", 0, 30)), 60)
				w.Start(w.ctx)
				w.announce(true)
				w.sleep(30)
				if cancelled {
					w.announce(false)
				}
				w.announce(true)
				w.sleep(1)
				if status := get(w, &w.status)["daemon"]; status.Phase != v1.PodRunning || len(status.Conditions) > 0 {
					t.Errorf("the pod is failed: %+v", status)
				}
				if !w.RestartsAfterShutdown(ds) {
					t.Error("the pod does not restart")
				}
				w.set(func() { w.calls = nil })
				w.announce(false)
				w.sleep(1)
				if want := "31 restart [daemon]"; !slices.Contains(w.calls, want) {
					t.Errorf("calls %q, want %q", w.calls, want)
				}
			})
		})
	}
}

// The shutdown is announced shortly after the start of the agent, before all sources have reported: pods that are
// reported later are stopped too, and the lock is held until then, at most for the total of the periods.
func TestAnnouncedBeforeAllSourcesHaveReported(t *testing.T) {
	for name, tc := range map[string]struct {
		ready bool
		want  []string
	}{
		"all report in time": {true, []string{"0 kill static 20", "1 stopped static", "1 unmounted [static]",
			"5 kill plain 20", "6 stopped plain", "6 unmounted [plain]", "6 unlock 1"}},
		"one does not report": {false, []string{"0 kill static 20", "1 stopped static", "1 unmounted [static]",
			"5 kill plain 20", "6 stopped plain", "6 unmounted [plain]", "30 unlock 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, twoGroups, func(w *world) {
				w.ready = false
				w.add(static(aPod("static", 0, 30)), 1)
				w.Start(w.ctx)
				w.announce(true)
				w.sleepFor(4500 * time.Millisecond)
				w.add(aPod("plain", 0, 30), 1)
				w.set(func() { w.ready = tc.ready })
				w.sleep(60)
				w.expect(append([]string{"0 delay 30s", "0 lock 1", "0 node down=true"}, tc.want...)...)
			})
		})
	}
}
