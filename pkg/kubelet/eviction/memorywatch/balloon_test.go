package memorywatch

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// balloon is a node whose size of memory changes by a step with each read of the counters: a balloon is inflated and
// deflated. Readings take time. onReading, unless nil, is called at the begin of each reading.
type balloon struct {
	now               *time.Time
	spent             time.Duration
	step, total, used int64
	readings          int
	onReading         func()
}

func (b *balloon) use(d time.Duration) { *b.now = b.now.Add(d); b.spent += d }

func (b *balloon) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	b.use(200 * time.Microsecond)
	b.step = -b.step
	b.total += b.step
	return snapshot.MemoryCounters{Node: snapshot.Bytes(b.used), NodeCapacity: snapshot.Bytes(b.total)}, nil
}

func (b *balloon) ReadMemory(h snapshot.Counting) snapshot.MemoryReading { return b.ReadPods(h, nil) }

func (*balloon) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage { return into }

func (*balloon) ReadPod(snapshot.Counting, types.UID) (snapshot.PodMemory, error) {
	return snapshot.PodMemory{}, nil
}

func (b *balloon) ReadPods(snapshot.Counting, []types.UID) snapshot.MemoryReading {
	if b.readings++; b.onReading != nil {
		b.onReading()
	}
	b.use(800 * time.Microsecond)
	return snapshot.MemoryReading{
		Node: snapshot.Observation{Available: b.total - b.used, Capacity: b.total, At: *b.now},
		Pods: snapshot.Observation{Err: errNotRead},
	}
}

func thresholds(t *testing.T, hard string) []policy.Threshold {
	t.Helper()
	list, err := settings.ParseThresholds(settings.ThresholdConfig{
		Hard: map[string]string{"memory.available": hard}, AllocatableEnforced: []string{"pods"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// While the size of memory changes with each read of the counters, thresholds follow without further readings, so that
// reading takes no larger share of the time than elsewhere.
func TestBalloonCostsNoReadings(t *testing.T) {
	armed := thresholds(t, "2030Mi")
	for _, step := range []int64{0, 4096} {
		begin := time.Unix(1000, 0)
		now := begin
		b := &balloon{now: &now, step: step, total: 32 * gi, used: 30 * gi}
		w := New(b, func() time.Time { return now })
		w.Adopt(new(settings.DefaultOptions()))
		for now.Sub(begin) < time.Minute {
			now = snapshot.Later(now, w.Next())
			w.Arm(armed)
			w.Check()
		}
		if share := b.spent.Seconds() / now.Sub(begin).Seconds(); share > 1.25/PauseShare {
			t.Errorf("step %d: reading takes %.1f %% of the time, with %d readings of the node, want %.1f %% at most", step,
				100*share, b.readings, 125./PauseShare)
		}
	}
}

// Half of the memory is taken away between a read of the counters and the reading that it causes: a threshold in
// percent follows.
func TestMemoryChangesItsSizeDuringAReading(t *testing.T) {
	armed := thresholds(t, "10%")
	now := time.Unix(1000, 0)
	b := &balloon{now: &now, total: 64 * gi, used: 10 * gi}
	w := New(b, func() time.Time { return now })
	w.Adopt(new(settings.DefaultOptions()))
	w.Arm(armed)
	b.used = 58 * gi
	b.onReading = func() { b.total, b.used = 32*gi, 10*gi }
	now = now.Add(time.Second)
	w.Check()
	if got, want := w.floors[0].amount, 32*gi/10; b.readings < 2 || max(got-want, want-got) > mi {
		t.Errorf("after %d readings the threshold is %d MiB, want %d", b.readings, got/mi, want/mi)
	}
}
