package agentlife

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// patience is how long a test waits for what must come by itself.
const patience = 5 * time.Minute

// await waits until done, in the time of the bubble.
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
	a.changed()
}

// etcdRestore is a control plane node whose agent was restarted while its API server, a static pod itself, cannot be
// reached.
func etcdRestore(t *testing.T, story func(t *testing.T, w *world, a *agent)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1, t.TempDir())
		w.selfHosted, w.reachable = "kube-apiserver", false
		for _, name := range []string{"etcd", "kube-apiserver"} {
			w.files[name] = manifest{revision: 1}
			w.start(staticPod(name, 1))
		}
		a := w.begin(t)
		defer a.end()
		time.Sleep(10 * time.Second)
		story(t, w, a)
		for _, fault := range w.wrong {
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

func TestStaticPodMovedBackWhileItStillStops(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		w.put(a, "etcd", 0)
		w.put(a, "etcd", 1)
		w.await(t, "etcd is stopped", func() bool { return join(w.runningUIDs()) == "[kube-apiserver-1]" })
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}

// A manifest that is written in place is unreadable for a moment; the agent may list the manifests just then.
func TestStaticPodWhoseManifestWasUnreadableOnce(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		w.change(func() { w.files["etcd"] = manifest{revision: 1, unreadable: true} })
		w.awaitRunning(t, "kube-apiserver-1")
		w.put(a, "etcd", 1)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}

// The runtime may not stop the pod at the first try. The configuration has no pod of that UID any more that would have
// it tried again.
func TestStaticPodReplacedWhileTheRuntimeFails(t *testing.T) {
	for _, call := range []string{"terminate etcd-1", "clean up etcd-1"} {
		etcdRestore(t, func(t *testing.T, w *world, a *agent) {
			w.change(func() { w.failures[call] = 3 })
			w.put(a, "etcd", 2)
			w.awaitRunning(t, "etcd-2", "kube-apiserver-1")
		})
	}
}

// The runtime is down while a static pod is moved away. Its retry, its return and the look for restarts all fall on the
// turns that the loop makes when the runtime is back, in any order: so the story is played often.
func TestStaticPodMovedAwayAndBackWhileTheRuntimeIsDown(t *testing.T) {
	for range 50 {
		etcdRestore(t, func(t *testing.T, w *world, a *agent) {
			w.put(a, "etcd", 0)
			w.change(func() { w.down = true })
			time.Sleep(2 * backoffPeriod)
			w.put(a, "etcd", 1)
			time.Sleep(time.Second)
			w.change(func() { w.down = false })
			w.await(t, "etcd is not to be stopped any more", func() bool {
				return !a.store.IsPodTerminationRequested("etcd-1")
			})
			w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
		})
		if t.Failed() {
			return
		}
	}
}

// A static pod that was rejected has no life that would have to end first: moved away and back, however quickly, it is
// judged as a new pod. As long as the machine goes down it is rejected again.
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
			if !a.over("dns-1") {
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

// A static pod that was replaced while no agent was there comes back as it was, just when the new agent stops it.
func TestStaticPodThatReplacesItsOwnSuccessor(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		a.die()
		w.change(func() { w.files["etcd"], w.slow = manifest{revision: 2}, true })
		a2 := w.begin(t)
		defer a2.end()
		w.await(t, "the predecessor is stopped", func() bool { return a2.store.IsPodTerminationRequested("etcd-1") })
		w.put(a2, "etcd", 1)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}

// A shutdown that is cancelled leaves static pods stopped, or in the middle of it.
func TestStaticPodStoppedForACancelledShutdown(t *testing.T) {
	etcdRestore(t, func(t *testing.T, w *world, a *agent) {
		a.announce(true)
		w.awaitRunning(t)
		a.announce(false)
		w.awaitRunning(t, "etcd-1", "kube-apiserver-1")
	})
}
