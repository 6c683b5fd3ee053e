package agentlife

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// patience is how long a test waits for a condition.
const patience = 5 * time.Minute

// await waits until done returns true, in virtual time.
func (w *world) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for begin := time.Now(); !done(); {
		if time.Since(begin) > patience {
			t.Fatalf("%s: not within %v; %s run", what, patience, join(w.runningUIDs()))
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

// awaitRunning waits until exactly these pods run.
func (w *world) awaitRunning(t *testing.T, uids ...types.UID) {
	t.Helper()
	w.await(t, join(uids)+" run", func() bool { return join(w.runningUIDs()) == join(uids) })
}

// put writes a manifest; revision zero removes it.
func (w *world) put(a *agent, name string, revision int) {
	w.change(func() {
		if w.files[name] = (manifest{revision: revision}); revision == 0 {
			delete(w.files, name)
		}
	})
	a.readNow()
}

// etcdRestore runs a test on a control plane node whose agent was restarted while the API server, a static pod of the
// node, cannot be reached.
func etcdRestore(t *testing.T, test func(t *testing.T, w *world, a *agent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, t.TempDir())
		w.selfHosted, w.reachable = "kube-apiserver", false
		for _, name := range []string{"etcd", "kube-apiserver"} {
			w.files[name] = manifest{revision: 1}
			w.start(staticPod(name, 1))
		}
		a := w.startAgent(t)
		defer a.stop()
		time.Sleep(10 * time.Second)
		test(t, w, a)
		for _, fault := range w.faults {
			t.Error(fault)
		}
	})
}

// The usual restore of etcd: the manifests are moved away until the pods have stopped, and back.
func TestStaticPodMovedAwayAndBackBeforeTheAPIServerAnswers(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		w.put(a, "etcd", 0)
		w.put(a, "kube-apiserver", 0)
		w.awaitRunning(t)
		time.Sleep(time.Minute)
		w.put(a, "etcd", 1)
		w.put(a, "kube-apiserver", 1)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}

func TestStaticPodMovedBackWhileItTerminates(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		w.put(a, "etcd", 0)
		w.put(a, "etcd", 1)
		w.await(t, "etcd is stopped", func() bool { return join(w.runningUIDs()) == "[kube-apiserver-1]" })
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}

// A manifest that is written in place is unreadable for a moment, in which the agent may list the manifests.
func TestStaticPodWhoseManifestWasUnreadableOnce(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		w.change(func() { w.files["etcd"] = manifest{revision: 1, unreadable: true} })
		w.awaitRunning(t, "kube-apiserver-1")
		w.put(a, "etcd", 1)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}

// The runtime fails to stop the replaced pod at first. The termination is retried, although no source has a pod with
// its UID.
func TestStaticPodReplacedWhileTheRuntimeFails(t *testing.T) {
	for _, call := range []string{"terminate etcd-1", "clean up etcd-1"} {
		etcdRestore(t, func(t *testing.T, w *world, a *agent) {
			w.change(func() { w.failures[call] = 3 })
			w.put(a, "etcd", 2)
			w.awaitRunning(t, "etcd-2", "kube-apiserver-1")
		})
	}
}

// The runtime is down while a static pod is moved away. When it is up again, the sync loop handles the retry, the new
// manifest and the restart of pods in random order, so the test is repeated.
func TestStaticPodMovedAwayAndBackWhileTheRuntimeIsDown(t *testing.T) {
	for range 50 {
		etcdRestore(t, func(t *testing.T, w *world, a *agent) {
			w.put(a, "etcd", 0)
			w.change(func() { w.down = true })
			time.Sleep(2 * backoffPeriod)
			w.put(a, "etcd", 1)
			time.Sleep(time.Second)
			w.change(func() { w.down = false })
			w.await(t, "the termination of etcd has ended", func() bool {
				return !a.store.IsPodTerminationRequested("etcd-1")
			})
			w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
		})
		if t.Failed() {
			return
		}
	}
}

// The runtime does not answer housekeeping once, for the default of runtimeRequestTimeout. After that a static pod is
// moved away and back: only housekeeping starts it again, and must not be long in coming.
func TestStaticPodMovedAwayAndBackAfterTheRuntimeHungOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hang = 2 * time.Minute
		w := newWorld(1, t.TempDir())
		w.reachable = true
		for _, name := range []string{"etcd", "kube-apiserver"} {
			w.files[name] = manifest{revision: 1}
			w.start(staticPod(name, 1))
		}
		a := w.startAgent(t)
		defer a.stop()
		time.Sleep(10 * time.Second)
		w.change(func() { w.hang = hang })
		time.Sleep(hang + 3*time.Second)
		w.put(a, "etcd", 0)
		w.awaitRunning(t, "kube-apiserver-1")
		w.put(a, "etcd", 1)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}

// A rejected static pod that is moved away and back is admitted as a new pod. While the machine shuts down, it is
// rejected again.
func TestRejectedStaticPodMovedAwayAndBack(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		a.announce(true)
		w.awaitRunning(t)
		for range 2 {
			w.put(a, "dns", 0)
			w.put(a, "dns", 1)
			for range 20 {
				time.Sleep(time.Second)
				if running := join(w.runningUIDs()); running != "[]" {
					t.Fatalf("%s run while the machine goes down", running)
				}
			}
			if !a.isTerminal("dns-1") {
				t.Fatal("dns is not rejected")
			}
		}
		a.announce(false)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
		w.put(a, "dns", 0)
		w.put(a, "dns", 1)
		w.awaitRunning(t, "dns-1", "etcd-1", "kube-apiserver-1")
	})
}

// An update of the mirror pod of a rejected static pod, which an earlier run of the agent may have created, does not
// start a pod worker.
func TestRejectedStaticPodWithMirrorPodMovedAwayAndBack(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		a.announce(true)
		w.awaitRunning(t)
		w.put(a, "dns", 1)
		w.await(t, "dns is rejected", func() bool { return a.isTerminal("dns-1") })
		mirror := newPod("mirror-of-dns", kubetypes.ApiserverSource)
		mirror.Name = "dns"
		mirror.Annotations[kubetypes.ConfigMirrorAnnotationKey] = "x"
		a.updates <- kubetypes.PodUpdate{Op: kubetypes.ADD, Source: kubetypes.ApiserverSource, Pods: []*v1.Pod{mirror}}
		time.Sleep(time.Second)
		w.put(a, "dns", 0)
		w.put(a, "dns", 1)
		for range 20 {
			time.Sleep(time.Second)
			if running := join(w.runningUIDs()); running != "[]" {
				t.Fatalf("%s run while the machine goes down", running)
			}
		}
		if !a.isTerminal("dns-1") {
			t.Error("dns is not rejected again")
		}
	})
}

// A static pod is replaced while the agent is not running. Its old manifest is written again while the new agent stops
// the old pod.
func TestReplacementOfAStaticPodIsReverted(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		a.crash()
		w.change(func() { w.files["etcd"], w.slow = manifest{revision: 2}, true })
		a2 := w.startAgent(t)
		defer a2.stop()
		w.await(t, "the old pod is being stopped", func() bool { return a2.store.IsPodTerminationRequested("etcd-1") })
		w.put(a2, "etcd", 1)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}

// Static pods that were stopped, or are being stopped, when a shutdown is cancelled, start again.
func TestStaticPodStoppedForACancelledShutdown(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		a.announce(true)
		w.awaitRunning(t)
		a.announce(false)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}

// A static pod that is moved away and back while the machine shuts down starts only after the shutdown was cancelled.
func TestStaticPodMovedAwayAndBackWhileTheMachineGoesDown(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		a.announce(true)
		w.put(a, "etcd", 0)
		w.put(a, "etcd", 1)
		w.awaitRunning(t)
		for range 60 {
			time.Sleep(time.Second)
			if running := join(w.runningUIDs()); running != "[]" {
				t.Fatalf("%s run while the machine goes down", running)
			}
		}
		a.announce(false)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}
