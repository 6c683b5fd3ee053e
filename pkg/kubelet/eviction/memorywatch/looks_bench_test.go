package memorywatch

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// listed is a reader of pods whose memory is in a list, so that reading it costs next to nothing.
type listed []snapshot.PodUsage

func (l listed) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage { return append(into, l...) }

func (l listed) ReadPod(_ snapshot.Counting, uid types.UID) (m snapshot.PodMemory, err error) {
	for i := range l {
		if l[i].UID == uid {
			m.Resident = l[i].Usage
		}
	}
	return m, nil
}

func (l listed) ReadPods(snapshot.Counting, []types.UID) (r snapshot.MemoryReading) { return r }

// BenchmarkLooks measures what a look at 110 pods costs beside the reading of files, and what follows from it. Three of
// the pods grow.
func BenchmarkLooks(b *testing.B) {
	pods := make(listed, 110)
	for i := range pods {
		pods[i] = snapshot.PodUsage{UID: types.UID(fmt.Sprintf("pod-%03d", i)), Usage: snapshot.Bytes(20 * mi)}
	}
	l := &looks{reader: pods}
	now, free := time.Now(), 100*gi
	b.ReportAllocs()
	for b.Loop() {
		for i := range 3 {
			pods[i].Usage += snapshot.Bytes(mi)
		}
		free -= 3 * mi
		now = now.Add(8 * time.Millisecond)
		l.add(now, lookState{free: free, date: now})
		l.unmeasured(endedWindow, 0)
	}
}
