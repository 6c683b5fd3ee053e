package memorywatch

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// balloon is a node whose MemTotal changes by one page with each read while a balloon is being inflated. Readings take
// time.
type balloon struct {
	now         *time.Time
	spent       time.Duration
	step, total int64
	nodes       int
}

func (b *balloon) use(d time.Duration) { *b.now = b.now.Add(d); b.spent += d }

func (b *balloon) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	b.use(200 * time.Microsecond)
	b.step = -b.step // It is inflated and deflated in turn.
	b.total += b.step
	return snapshot.MemoryCounters{Node: snapshot.Bytes(30 * gi), NodeCapacity: snapshot.Bytes(b.total)}, nil
}

func (b *balloon) ReadMemory(h snapshot.Counting) snapshot.MemoryReading { return b.ReadPods(h, nil) }

func (*balloon) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage { return into }

func (*balloon) ReadPod(snapshot.Counting, types.UID) (snapshot.PodMemory, error) {
	return snapshot.PodMemory{}, nil
}

func (b *balloon) ReadPods(snapshot.Counting, []types.UID) snapshot.MemoryReading {
	b.nodes++
	b.use(800 * time.Microsecond)
	return snapshot.MemoryReading{
		Node: snapshot.Observation{Available: b.total - 30*gi, Capacity: b.total, At: *b.now},
		Pods: snapshot.Observation{Err: errNotRead},
	}
}

// While MemTotal changes at each read, thresholds are armed again at each read, with a reading of all pods' cgroups,
// which is not among the costs by which reading is bounded (PauseShare: a fiftieth of the time).
func TestAttack15BalloonDoesNotExceedTheShareOfReading(t *testing.T) {
	thresholds, err := settings.ParseThresholds(settings.ThresholdConfig{
		Hard: map[string]string{"memory.available": "2030Mi"}, AllocatableEnforced: []string{"pods"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int64{0, 4096} {
		begin := time.Unix(1000, 0)
		now := begin
		b := &balloon{now: &now, step: step, total: 32 * gi}
		w := New(b, func() time.Time { return now })
		w.Adopt(new(settings.DefaultOptions()))
		reads := 0
		for now.Sub(begin) < time.Minute {
			now = snapshot.Later(now, w.Next())
			w.Arm(thresholds)
			w.Check()
			reads++
		}
		share := b.spent.Seconds() / now.Sub(begin).Seconds()
		t.Logf("step %d: %d reads, %d readings of the node, %.1f %% of the time", step, reads, b.nodes, 100*share)
		if share > 1.25/PauseShare {
			t.Errorf("step %d: reading takes %.1f %% of the time, want %.1f %% at most", step, 100*share, 125./PauseShare)
		}
	}
}
