package eviction

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
)

// The tests of this file are what random runs of the model have found. All checks of the model hold in them, too.

// smallNode is a node of 16 GiB with a hard memory threshold and nothing else.
func smallNode(hard int64) *modelNode {
	now := time.Now()
	n := &modelNode{began: now, at: now, byUID: map[types.UID]*modelPod{}}
	n.capacity, n.podsLimit = float64(16*gi), float64(16*gi)
	n.settings.hard, n.settings.timing = float64(hard), new(settings.Kubelet).Rules(new(settings.DefaultOptions())).Timing
	n.settings.config.Hard = map[string]string{"memory.available": fmt.Sprint(hard)}
	return n
}

// add adds a pod that uses so much, and requests twice that.
func (n *modelNode) add(name string, uses int64) *modelPod {
	p := newModelPod(name)
	p.memory[anonymous] = float64(uses)
	p.requests(2 * float64(uses))
	n.adopt(p)
	return p
}

// leaves gives the system so much that this is available.
func (n *modelNode) leaves(available int64) {
	n.system = n.capacity - n.podsUsed() - float64(available)
}

func (n *modelNode) after(d time.Duration, what string, do func()) {
	n.script = append(n.script, modelEvent{n.began.Add(d), what, func(*modelNode) { do() }})
}

// playFound runs the manager on a small node.
func playFound(t *testing.T, n *modelNode) {
	t.Helper()
	n.begin()
	n.replayed = true
	n.drive(t)
	for _, f := range n.checks.faults {
		t.Errorf("%s: %s", f.check, f.text)
	}
	t.Log(n.story(-1))
}

// evicted are the names of those evicted in the first part of a run, in order.
func (n *modelNode) evicted(within time.Duration) (names []string) {
	for _, o := range n.orders {
		if n.sinceStart(o.at) <= within {
			names = append(names, o.pod.name())
		}
	}
	return names
}

// TestModelClockThatIsSetLeavesMemoryWatched: the summary's stats are stamped with the wall clock. What is read from
// the counters after that was set back is new all the same.
func TestModelClockThatIsSetLeavesMemoryWatched(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -time.Minute, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := smallNode(gi)
				n.add("hog", 4*gi)
				n.leaves(2 * gi)
				n.after(15*time.Second, "the wall clock steps", func() { n.steps(step) })
				n.after(22*time.Second, "the system takes memory", func() { n.systemGrows(float64(500 * mi)) })
				n.after(25*time.Second, "the system takes no more", func() { n.systemGrows(0) })
				playFound(t, n)
				expect(t, "evicted within a second", n.evicted(26*time.Second), []string{"hog"})
			})
		})
	}
}

// TestModelReleasesHideNoGrowth: a static pod leaks. After each victim more is available than a while ago, but the
// leak goes on: pods within their requests go one in a monitoring period.
func TestModelReleasesHideNoGrowth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := smallNode(100 * mi)
		leak := n.add("leak", gi)
		leak.makeStatic()
		for i := range 20 {
			n.add(fmt.Sprintf("pod-%02d", i), 40*mi)
		}
		n.leaves(400 * mi)
		n.podGrows(leak, float64(20*mi))
		playFound(t, n)
		for i := 1; i < len(n.orders); i++ {
			if pause := n.orders[i].at.Sub(n.orders[i-1].at); pause < n.settings.timing.Period {
				t.Errorf("%s goes %v after %s", n.orders[i].pod.name(), pause, n.orders[i-1].pod.name())
			}
		}
		expect(t, "pods are evicted", len(n.orders) > 2, true)
	})
}

// TestModelGrowthOfADeletedPodTakesNobody: a pod that grows has been deleted, and has more of its grace period left
// than a kill takes. It is hastened; no other goes for what it comes to use.
func TestModelGrowthOfADeletedPodTakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := smallNode(100 * mi)
		leak := n.add("leak", gi)
		*leak.object.Spec.Priority = 4
		leak.ending = time.Minute
		leak.requests(float64(100 * gi))
		for i := range 20 {
			n.add(fmt.Sprintf("pod-%02d", i), 40*mi)
		}
		n.leaves(6 * gi)
		n.podGrows(leak, float64(100*mi))
		n.after(58*time.Second, "the leak is deleted", func() { n.deletes(leak, 10*time.Second) })
		playFound(t, n)
		expect(t, "evicted", n.evicted(70*time.Second), []string{"leak"})
	})
}

// TestModelReleaseGrowsWithItsPod: a victim fills its volume in memory until it ends. What is to come back with the
// volume is what was in it then, and not what was in it when the pod was asked to stop. It covers what is missing, so
// no other pod goes.
func TestModelReleaseGrowsWithItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := smallNode(gi)
		leak := n.add("leak", 50*mi)
		leak.requests(float64(mi))
		leak.memory[memoryVolume], leak.kind = float64(500*mi), memoryVolume
		leak.takes, leak.volumes = 25*time.Second, 25*time.Second
		n.add("other", gi)
		n.leaves(1100 * mi)
		n.podGrows(leak, float64(50*mi))
		playFound(t, n)
		expect(t, "evicted", n.evicted(time.Minute), []string{"leak"})
	})
}

// hasSoft adds a soft memory threshold of 1 GiB that acts after 10 s.
func (n *modelNode) hasSoft() {
	n.settings.soft = float64(gi)
	n.settings.config.Soft = map[string]string{"memory.available": fmt.Sprint(gi)}
	n.settings.config.SoftGracePeriods = map[string]string{"memory.available": "10s"}
}

// TestModelSoftThresholdWaitsForADeletedPod: a pod that covers what a soft threshold misses has been deleted, and has
// 45 s of its grace period left. Victims of the threshold get up to a minute, so none would be gone much sooner.
func TestModelSoftThresholdWaitsForADeletedPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := smallNode(100 * mi)
		n.hasSoft()
		deleted := n.add("deleted", gi)
		deleted.ending = time.Minute
		n.add("other", 2*gi)
		n.leaves(600 * mi)
		n.after(5*time.Second, "a pod is deleted", func() { n.deletes(deleted, 50*time.Second) })
		playFound(t, n)
		expect(t, "nobody is evicted", len(n.orders), 0)
	})
}

// TestModelFailedHasteningLeavesAPodDying: the same, and a moment of hard pressure hastens the deleted pod in vain. It
// goes on with its grace period, and still covers what the soft threshold misses.
func TestModelFailedHasteningLeavesAPodDying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := smallNode(100 * mi)
		n.hasSoft()
		deleted := n.add("deleted", gi)
		deleted.ending, deleted.failures, deleted.fails = time.Minute, 1, 500*time.Millisecond
		n.add("other", 2*gi)
		n.leaves(600 * mi)
		n.after(5*time.Second, "a pod is deleted", func() { n.deletes(deleted, 50*time.Second) })
		n.after(8*time.Second, "the system takes memory", func() { n.systemGrows(float64(600 * mi)) })
		n.after(9*time.Second, "the system takes no more", func() { n.systemGrows(0) })
		n.after(10*time.Second, "the system gives back", func() { n.systemGrows(float64(-600 * mi)) })
		n.after(11*time.Second, "the system gives back no more", func() { n.systemGrows(0) })
		playFound(t, n)
		expect(t, "evicted", n.evicted(time.Minute), []string{"deleted"})
	})
}

// TestModelClockThatIsSetAfterADeletion: the deletion of a pod is dated by the wall clock, which is set before the
// manager sees it. The pod's grace period ends no earlier than if it had been deleted when it was last seen without a
// deletion, so that the pod counts as on its way and nobody else goes.
func TestModelClockThatIsSetAfterADeletion(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, time.Minute, time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := smallNode(gi)
				deleted := n.add("deleted", 2*gi)
				deleted.takes = 20 * time.Second
				n.add("other", 2*gi)
				n.leaves(2 * gi)
				n.after(13*time.Second, "a pod is deleted", func() { n.deletes(deleted, 8*time.Second) })
				n.after(14*time.Second, "the wall clock steps", func() { n.steps(step) })
				n.after(25*time.Second, "the system takes memory", func() { n.systemGrows(float64(500 * mi)) })
				n.after(28*time.Second, "the system takes no more", func() { n.systemGrows(0) })
				playFound(t, n)
				expect(t, "nobody is evicted", len(n.orders), 0)
			})
		})
	}
}

// TestModelPageCacheOfVictimsIsNoGrowthOfTheSystem: a pod within its request leaks, and of the pods that go before it
// some leave page cache behind. That is no growth of the system, for which the others would have to await their turn
// while memory runs out.
func TestModelPageCacheOfVictimsIsNoGrowthOfTheSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := smallNode(500 * mi)
		for i := range 40 {
			p := n.add(fmt.Sprintf("pod-%02d", i), 70*mi)
			p.takes, p.cacheLingers = 20*time.Second, time.Minute
			if i < 8 {
				p.memory[anonymous], p.memory[pageCache] = float64(10*mi), float64(60*mi)
				p.takes, p.volumes = time.Second, time.Minute
			}
		}
		leak := n.add("leak", 100*mi)
		*leak.object.Spec.Priority = 4
		leak.requests(float64(100 * gi))
		n.leaves(500*mi + 50*200*mi)
		n.podGrows(leak, float64(200*mi))
		playFound(t, n)
		// The page cache is left at 51 s.
		for after, before := 51500*time.Millisecond, 51*time.Second; after < 53*time.Second; after += 500 * time.Millisecond {
			if now := len(n.evicted(after)); now == len(n.evicted(before)) {
				t.Errorf("nobody goes from %v to %v", before, after)
			}
			before = after
		}
	})
}
