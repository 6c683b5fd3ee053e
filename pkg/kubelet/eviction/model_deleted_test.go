package eviction

import (
	"fmt"
	"math/rand"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
)

// drawDeletions draws, in some runs, further pods that are deleted, from a source of its own: the rest of a run is as
// without.
func (d *modelDraw) drawDeletions(seed int64) {
	r := &modelDraw{Rand: rand.New(rand.NewSource(-3 - 5*seed)), node: d.node, traits: d.traits}
	if d.traits.plain || !r.one(4) {
		return
	}
	for range 1 + r.Intn(5) {
		r.deletes(r.node.pods[r.Intn(len(r.node.pods))], r.at(), 20)
	}
}

// hasImageDisk adds an image disk of 100 GiB with such a threshold, of which so much is free.
func (n *modelNode) hasImageDisk(threshold, free int64) {
	n.settings.images = float64(threshold)
	n.settings.config.Hard["imagefs.available"] = fmt.Sprint(threshold)
	n.images = &modelDisk{capacity: float64(100 * gi)}
	n.images.other = n.imagesFree() - float64(free)
}

// TestModelDeletedPodThatHasEnded: a pod is deleted and ends, and a need is open. What it has released is not in stats
// from before its end; what its volumes still hold is on its way. It covers what is missing, so no other pod goes.
func TestModelDeletedPodThatHasEnded(t *testing.T) {
	for name, change := range map[string]func(n *modelNode, deleted *modelPod){
		"stats of a disk from before its end": func(n *modelNode, deleted *modelPod) {
			deleted.disk = float64(20 * gi)
			n.hasImageDisk(10*gi, 14*gi)
			n.after(8*time.Second, "the runtime measures", func() { n.sample() })
			n.after(11*time.Second, "others write", func() { n.images.otherRate = float64(gi) })
			n.after(17*time.Second, "others write no more", func() { n.images.otherRate = 0 })
			n.after(27*time.Second, "a pod is deleted", func() { n.deletes(deleted, 5*time.Second) })
		},
		"stats of memory from before its end": func(n *modelNode, deleted *modelPod) {
			n.sources.failsUntil, n.sources.takes = n.began.Add(time.Hour), 5*time.Second
			n.after(22*time.Second, "the system takes memory", func() { n.systemGrows(float64(500 * mi)) })
			n.after(25*time.Second, "the system takes no more", func() { n.systemGrows(0) })
			n.after(31*time.Second, "a pod is deleted", func() { n.deletes(deleted, 2*time.Second) })
		},
		"its volume in memory": func(n *modelNode, deleted *modelPod) {
			deleted.memory[anonymous], deleted.memory[memoryVolume] = 0, float64(2*gi)
			deleted.object.Spec.Volumes = []v1.Volume{{Name: "ram", VolumeSource: v1.VolumeSource{
				EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory},
			}}}
			deleted.volumes = 8 * time.Second
			n.after(19*time.Second, "a pod is deleted", func() { n.deletes(deleted, 5*time.Second) })
			n.after(25*time.Second, "the system takes memory", func() { n.systemGrows(float64(500 * mi)) })
			n.after(28*time.Second, "the system takes no more", func() { n.systemGrows(0) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := smallNode(gi)
				deleted := n.add("deleted", 2*gi)
				n.add("other", 2*gi).disk = float64(5 * gi)
				n.leaves(2 * gi)
				change(n, deleted)
				playFound(t, n)
				expect(t, "nobody is evicted", len(n.orders), 0)
			})
		})
	}
}

// TestModelFailedKillOfAPodThatEnds: the kill of a victim fails, others delete the pod, and its containers end. What
// its volume in memory still holds is on its way as without the failure. It covers what is missing, so no other pod
// goes.
func TestModelFailedKillOfAPodThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := smallNode(gi)
		victim := n.add("victim", 0)
		victim.requests(float64(mi))
		victim.memory[memoryVolume] = float64(2 * gi)
		victim.object.Spec.Volumes = []v1.Volume{{Name: "ram", VolumeSource: v1.VolumeSource{
			EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory},
		}}}
		victim.failures, victim.fails, victim.volumes = 1, 300*time.Millisecond, 8*time.Second
		n.add("other", 2*gi)
		n.leaves(1100 * mi)
		n.after(20*time.Second, "the system takes memory", func() { n.systemGrows(float64(100 * mi)) })
		n.after(21*time.Second, "the system takes no more", func() { n.systemGrows(0) })
		n.after(22*time.Second, "the victim is deleted", func() { n.deletes(victim, 2*time.Second) })
		playFound(t, n)
		expect(t, "evicted", n.evicted(time.Minute), []string{"victim"})
	})
}
