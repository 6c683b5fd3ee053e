package policy

import (
	"fmt"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// done is a reclaim that took the last second.
func (w *world) done(inodes bool, got snapshot.Reclaimed) snapshot.Reclaim {
	return snapshot.Reclaim{Device: snapshot.NodeDevice, Inodes: inodes, Started: w.now.Add(-time.Second), Finished: w.now, Got: got}
}

func TestReclaimAsksForTheThresholdAndTheMinimum(t *testing.T) {
	w := newWorld(t, rulesOf(reclaiming(threshold(snapshot.NodeFsAvailable, "10Gi"), "2Gi"), threshold(snapshot.ImageFsAvailable, "11Gi")))
	d := w.available(snapshot.NodeFsAvailable, 9*gi).available(snapshot.ImageFsAvailable, 9*gi).after(time.Second)
	want := ReclaimRequest{Device: snapshot.NodeDevice, Signal: snapshot.NodeFsAvailable, Containers: true, Images: true, Amount: 3 * gi, Target: 12 * gi}
	if len(d.Reclaims) != 1 || d.Reclaims[0] != want {
		t.Errorf("reclaims %+v, want %+v", d.Reclaims, want)
	}
}

// A reclaim is sized to the need. What it left for later is taken before a pod goes.
func TestReclaimGoesOnWhileThereIsMore(t *testing.T) {
	for _, more := range []bool{true, false} {
		w := newWorld(t, rulesOf(threshold(snapshot.NodeFsAvailable, "10Gi")), spec{name: "writer", disk: gi})
		w.outcome(w.available(snapshot.NodeFsAvailable, 9*gi).after(time.Second), ReclaimNode)
		w.now = w.now.Add(time.Second)
		w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{Images: 1, Freed: gi, More: more})}
		d := w.after(time.Second)
		if more {
			w.outcome(d, ReclaimNode)
			w.evicts(d)
		} else {
			w.evicts(d, "writer")
		}
	}
}

// Enough bytes are not enough inodes: each is reclaimed for itself.
func TestBytesAndInodesAreReclaimedApart(t *testing.T) {
	w := newWorld(t, rulesOf(threshold(snapshot.NodeFsInodesFree, "1k")), spec{name: "pod", inodes: 10})
	w.available(snapshot.NodeFsInodesFree, 2000).after(time.Second)
	w.now = w.now.Add(time.Minute)
	w.available(snapshot.NodeFsInodesFree, 100)
	w.reclaim = []snapshot.Reclaim{w.done(false, snapshot.Reclaimed{})}
	d := w.after(0)
	w.outcome(d, ReclaimNode)
	if len(d.Reclaims) != 1 || !d.Reclaims[0].Inodes() {
		t.Errorf("reclaims %+v", d.Reclaims)
	}
	w.reclaim = append(w.reclaim, w.done(true, snapshot.Reclaimed{}))
	w.evicts(w.after(time.Second), "pod")
}

// D14: stock measures nothing on the image device of a split file system and evicts in the order of its input. We rank by what a
// pod alone keeps there.
func TestD14SplitFileSystemRanksByImages(t *testing.T) {
	images := map[string]int64{"a-shares": 0, "b-small": gi, "c-big": 5 * gi}
	for name, test := range map[string]struct {
		signal snapshot.Signal
		known  bool
		want   string
	}{
		"bytes":                         {snapshot.ImageFsAvailable, true, "c-big"},
		"nobody knows who uses what":    {snapshot.ImageFsAvailable, false, "a-shares"},
		"inodes, which nobody can tell": {snapshot.ImageFsInodesFree, true, "a-shares"},
		"node device":                   {snapshot.NodeFsAvailable, true, "writer"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, rulesOf(threshold(test.signal, "1Gi")),
				spec{name: "writer", disk: 20 * gi, storage: 30 * gi, logs: 15 * gi}, spec{name: "a-shares", disk: gi}, spec{name: "b-small", disk: gi}, spec{name: "c-big", disk: gi})
			w.layout = layoutOf(true, true)
			w.available(test.signal, mi)
			w.reclaim = []snapshot.Reclaim{
				{Device: snapshot.ImageDevice, Started: w.now, Finished: w.now.Add(time.Second)},
				{Device: snapshot.ImageDevice, Inodes: true, Started: w.now, Finished: w.now.Add(time.Second)},
				{Device: snapshot.NodeDevice, Started: w.now, Finished: w.now.Add(time.Second)},
			}
			w.now = w.now.Add(time.Second)
			s := w.snapshot()
			for i := range s.Pods {
				if bytes, ok := images[s.Pods[i].Object.Name]; ok && test.known {
					s.Pods[i].Images = snapshot.Known(snapshot.Bytes(bytes), w.now)
				}
			}
			d, _ := Decide(s, w.rules, Memory{})
			w.evicts(d, test.want)
			if v := d.Victims; test.known && test.signal == snapshot.ImageFsAvailable && len(v) == 1 {
				if got := v[0].Expected.Devices[snapshot.ImageDevice].Bytes; fmt.Sprint(got) != fmt.Sprint(5*gi) {
					t.Errorf("expected release %d", got)
				}
			}
		})
	}
}
