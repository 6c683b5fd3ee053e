package memorywatch

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// swapping is a disturbed node where swap counts as used, of which each idle pod has some: the counters of pods do not
// have it. asked is how many pods were read last.
type swapping struct {
	*disturbed
	swap  int64
	asked int
}

func (s *swapping) ReadPods(how snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	s.asked = len(uids)
	r := s.disturbed.ReadPods(how, uids)
	for uid, m := range r.ByPod {
		if uid != "hog" {
			m.WorkingSet.Amount += snapshot.Bytes(s.swap)
		}
	}
	return r
}

func (s *swapping) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	return s.ReadPods(how, s.uids())
}

// Pods have swap. At the crossing those are read whose counters have changed, and not all.
func TestPodsWithSwapAreNotReadAgain(t *testing.T) {
	for i := range 20 {
		d := newDisturbed(uint64(i), 100*time.Microsecond, restOf(i))
		d.others, d.pod = 100, 330*time.Microsecond
		s := &swapping{disturbed: d, swap: 8 * mi}
		if d.crossBy(t, s, true); s.asked > changedCount {
			t.Errorf("run %d: %d pods are read at the crossing", i, s.asked)
		}
	}
}

// A pod gains 300 MiB after the last collection, and stops. The others vary by 512 KiB, so that the collection has read
// some of them with more than they had at the look before. At the crossing by a third pod, a second later, the reading
// has these 300 MiB: the pods that have changed most are read.
func TestPodThatHasGrownIsReadBesidePodsThatVary(t *testing.T) {
	const each = 300 * time.Millisecond
	for i := range 20 {
		d := newDisturbed(uint64(i), 100*time.Microsecond, 14*time.Second)
		d.others, d.distance, d.rate = 60, 1500*mi, 1200*mi
		from := d.growsAt.Add(time.Duration(i)*37*time.Millisecond - 3*time.Second)
		d.noise = func(at time.Time) int64 {
			return int64(300 * float64(mi) * min(1, max(0, at.Sub(from).Seconds()/0.3)))
		}
		d.more = func(pod int, at time.Time) int64 {
			if pod == 9 { // The last one by name.
				return d.noise(at)
			}
			return 512 << 10 * (at.Add(time.Duration(pod)*each/30).UnixNano() / int64(each/2) % 2)
		}
		_, _, r := d.cross(t)
		if m := r.ByPod["idle-9"]; m == nil || int64(m.WorkingSet.Amount) < 290*mi {
			t.Errorf("run %d: a pod of 301 MiB has %v by the reading", i, m)
		}
	}
}
