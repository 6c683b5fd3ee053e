package memorywatch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// This file has crossings that something disturbs shortly before: a read that takes long, memory that is freed, pods at
// rest, notifications, a collection.

// disturbed is a node on which reading takes time. All pods together may use 8 GiB, the threshold is 1 GiB. The pod
// "hog" grows, the others use about 1 MiB each.
type disturbed struct {
	anyThread
	now    time.Time
	random *rand.Rand
	// counters is how long a read of the counters takes, usage one of the counter of a pod, pod one of a pod in full. Each
	// takes up to 30 % less or more if varies.
	counters, usage, pod time.Duration
	varies               bool
	others               int
	// growsAt is when the hog begins to grow by rate, distance how far the threshold is then, released how much is
	// released before it is met.
	growsAt                  time.Time
	rate, distance, released int64
	// Of the reads since then, that with this number takes extra longer.
	reads, slow int
	extra       time.Duration
	// more is what an idle pod has beside 1 MiB, noise what all pods use beside the hog and 1 MiB each.
	more  func(pod int, at time.Time) int64
	noise func(at time.Time) int64
	// between is called after each read.
	between func(w *Watcher)
}

var disturbedSince = time.Unix(1000, 0)

func newDisturbed(seed uint64, counters, rest time.Duration) *disturbed {
	return &disturbed{
		now: disturbedSince, random: rand.New(rand.NewPCG(1, seed)), counters: counters, usage: counters / 10,
		pod: counters / 2, others: 20, growsAt: disturbedSince.Add(rest), rate: 100 * mi, distance: 100 * mi,
		more: func(int, time.Time) int64 { return 0 }, noise: func(time.Time) int64 { return 0 }, between: func(*Watcher) {},
	}
}

func (d *disturbed) take(duration time.Duration) {
	if d.varies {
		duration = time.Duration(float64(duration) * (0.7 + 0.6*d.random.Float64()))
	}
	d.now = d.now.Add(duration)
}

func (d *disturbed) ThreadTime() time.Duration { return d.now.Sub(disturbedSince) }

func (d *disturbed) hog() int64 {
	grown := max(0, int64(d.now.Sub(d.growsAt).Seconds()*float64(d.rate)))
	return 7*gi - d.distance - int64(d.others)*mi + grown
}

func (d *disturbed) all() int64 { return d.hog() + int64(d.others)*mi + d.noise(d.now) }

func (d *disturbed) uids() []types.UID {
	list := []types.UID{"hog"}
	for i := range d.others {
		list = append(list, types.UID(fmt.Sprintf("idle-%d", i)))
	}
	return list
}

func (d *disturbed) usageOf(uid types.UID) int64 {
	i := 0
	if _, err := fmt.Sscanf(string(uid), "idle-%d", &i); err != nil {
		return d.hog()
	}
	return mi + d.more(i, d.now)
}

func (d *disturbed) Counters(snapshot.Counting) (snapshot.MemoryCounters, error) {
	if !d.now.Before(d.growsAt) {
		if d.reads++; d.reads == d.slow {
			d.now = d.now.Add(d.extra)
		}
	}
	d.take(d.counters)
	return snapshot.MemoryCounters{Node: snapshot.Bytes(d.all()), Pods: snapshot.Bytes(d.all()), At: d.now}, nil
}

func (d *disturbed) PodUsages(into []snapshot.PodUsage) []snapshot.PodUsage {
	d.take(time.Duration(d.others+1) * d.usage)
	for _, uid := range d.uids() {
		into = append(into, snapshot.PodUsage{UID: uid, Usage: snapshot.Bytes(d.usageOf(uid))})
	}
	return into
}

func (d *disturbed) ReadPod(_ snapshot.Counting, uid types.UID) (snapshot.PodMemory, error) {
	d.take(d.pod)
	if uid == "hog" {
		return snapshot.PodMemory{Resident: snapshot.Bytes(d.hog())}, nil
	}
	return snapshot.PodMemory{Resident: snapshot.Bytes(mi / 2)}, nil
}

func (d *disturbed) ReadPods(_ snapshot.Counting, uids []types.UID) snapshot.MemoryReading {
	r := snapshot.MemoryReading{ByPod: map[types.UID]*snapshot.Memory{}}
	for _, uid := range uids {
		d.take(d.pod)
		used := snapshot.Value[snapshot.Bytes]{Known: true, Amount: snapshot.Bytes(d.usageOf(uid))}
		r.ByPod[uid] = &snapshot.Memory{WorkingSet: used}
	}
	d.take(d.counters)
	r.Node = snapshot.Observation{Available: 64*gi - d.all(), Capacity: 64 * gi, At: d.now}
	r.Pods = snapshot.Observation{Available: 8*gi - d.all(), Capacity: 8 * gi, At: d.now}
	return r
}

func (d *disturbed) ReadMemory(how snapshot.Counting) snapshot.MemoryReading {
	return d.ReadPods(how, d.uids())
}

// collect reads all pods as a collection does that began some time ago: the loop goes on meanwhile.
func (d *disturbed) collect(w *Watcher, reader Reader, begun time.Time) {
	now := d.now
	d.now = begun
	r := reader.ReadMemory(snapshot.Counting{})
	d.now = now
	w.Use(&r, begun)
}

// cross reads the counters until a crossing is read. It returns how long after the crossing it was first read, and by
// when there is a reading to decide by.
func (d *disturbed) cross(t *testing.T) (read, decided time.Duration, r *snapshot.MemoryReading) {
	t.Helper()
	return d.crossBy(t, d, false)
}

// crossBy is cross by a reader of the node.
func (d *disturbed) crossBy(t *testing.T, reader Reader, countSwap bool) (read, decided time.Duration,
	r *snapshot.MemoryReading,
) {
	t.Helper()
	w := New(reader, func() time.Time { return d.now })
	w.Adopt(&settings.Options{
		MonitoringPeriod: 10 * time.Second, WorstGrowth: 2 * gi, Fence: true, KillTime: time.Second, CountSwap: countSwap,
	})
	list := thresholds(t, "1Gi")
	way := float64(d.distance+d.released) / float64(d.rate)
	crossing := d.growsAt.Add(time.Duration(way * float64(time.Second)))
	for collectAt := d.now; d.now.Before(crossing.Add(5 * time.Second)); {
		d.now = snapshot.Later(d.now, w.Next())
		w.Arm(list)
		if !d.now.Before(collectAt) {
			d.collect(w, reader, d.now)
			collectAt = d.now.Add(10 * time.Second)
		}
		r := w.Check()
		if read == 0 && d.now.After(crossing) {
			read = d.now.Sub(crossing)
		}
		if r != nil && r.Pods.Available < gi {
			return read, d.now.Sub(crossing), r
		}
		d.between(w)
	}
	t.Fatal("the crossing was not read")
	return 0, 0, nil
}

// inTime fails the test if one of many times is longer than most.
func inTime(t *testing.T, what string, most time.Duration, times []time.Duration) {
	t.Helper()
	late, longest := 0, time.Duration(0)
	for _, d := range times {
		if longest = max(longest, d); d > most {
			late++
		}
	}
	if late > 0 {
		t.Errorf("%s: %d of %d took longer than %v, one %v", what, late, len(times), most, longest)
	}
}

// restOf is how long nothing grows: each growth begins at another time between two looks at rest.
func restOf(i int) time.Duration { return 20*time.Second + time.Duration(i)*37*time.Millisecond }

// One read takes much longer than the others, whichever it is: so much is owed then that only the crossing is still
// read, but that is.
func TestOneSlowReadDoesNotDelayTheCrossing(t *testing.T) {
	for _, counters := range []time.Duration{2 * time.Millisecond, 4 * time.Millisecond} {
		for _, extra := range []time.Duration{0, 15 * time.Millisecond, 30 * time.Millisecond} {
			var times []time.Duration
			for i := range 112 {
				d := newDisturbed(1, counters, restOf(i%8))
				d.slow, d.extra, d.usage = 1+i/8, extra, counters/8
				read, _, _ := d.cross(t)
				times = append(times, read)
			}
			inTime(t, fmt.Sprintf("counters in %v, once %v longer", counters, extra), 80*time.Millisecond+extra, times)
		}
	}
}

// A few MiB are freed shortly before the crossing, as when a process ends: the hog grows on.
func TestLittleThatIsFreedDoesNotDelayTheCrossing(t *testing.T) {
	for _, counters := range []time.Duration{200 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
		for _, freed := range []int64{2 * mi, 3 * mi, 5 * mi} {
			var times []time.Duration
			for before := 2 * time.Millisecond; before < 150*time.Millisecond; before += 2 * time.Millisecond {
				d := newDisturbed(1, counters, restOf(0))
				freedAt := d.growsAt.Add(time.Second - before)
				d.released = freed
				d.noise = func(at time.Time) int64 {
					if at.Before(freedAt) {
						return 0
					}
					return -freed
				}
				read, _, _ := d.cross(t)
				times = append(times, read)
			}
			inTime(t, fmt.Sprintf("counters in %v, %d MiB freed", counters, freed/mi), 80*time.Millisecond, times)
		}
	}
}

// Other pods use 3 MiB again and again for a moment.
func TestJitterDoesNotDelayTheCrossing(t *testing.T) {
	const each = 130 * time.Millisecond
	for _, counters := range []time.Duration{200 * time.Microsecond, time.Millisecond, 3 * time.Millisecond} {
		var times []time.Duration
		for i := range 120 {
			d := newDisturbed(uint64(i), counters, restOf(i))
			d.varies = true
			d.noise = func(at time.Time) int64 { return 3 * mi * (at.UnixNano() / int64(each) % 2) }
			read, _, _ := d.cross(t)
			times = append(times, read)
		}
		inTime(t, fmt.Sprintf("counters in %v", counters), 100*time.Millisecond, times)
	}
}

// The counters of pods at rest go up and down by some pages, each at another time, so that at each look another one has
// just gone up. The hog accounts for what is used up: the decision does not wait for them.
func TestPodsAtRestDoNotPostponeTheDecision(t *testing.T) {
	const each = 300 * time.Millisecond
	for _, counters := range []time.Duration{100 * time.Microsecond, 2 * time.Millisecond} {
		for _, amount := range []int64{128 << 10, 256 << 10, 512 << 10} {
			var times []time.Duration
			for i := range 20 {
				d := newDisturbed(uint64(i), counters, restOf(i))
				d.others = 30
				d.more = func(pod int, at time.Time) int64 {
					at = at.Add(time.Duration(pod) * each / 30)
					return amount * (at.UnixNano() / int64(each/2) % 2)
				}
				read, decided, _ := d.cross(t)
				times = append(times, decided-read)
			}
			inTime(t, fmt.Sprintf("counters in %v, pods by %d KiB", counters, amount>>10), 80*time.Millisecond, times)
		}
	}
}

// The kernel notifies ten times a second at rest: the reads because of that leave enough for the approach to the
// threshold.
func TestNotificationsDoNotDelayTheCrossing(t *testing.T) {
	for _, counters := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond} {
		var times []time.Duration
		for i := range 60 {
			d := newDisturbed(uint64(i), counters, restOf(i))
			notified := d.now
			d.between = func(w *Watcher) {
				if at := notified.Add(100 * time.Millisecond); at.Before(w.Next()) {
					notified = snapshot.Later(d.now, at)
					w.Hurry(notified)
				}
			}
			read, _, _ := d.cross(t)
			times = append(times, read)
		}
		inTime(t, fmt.Sprintf("counters in %v", counters), 80*time.Millisecond, times)
	}
}

// A pod uses 800 MiB between two looks, and a collection reads it just then. At the crossing it uses as little as at
// those looks, and so it says in the reading.
func TestCollectionReadsPodBetweenTwoLooks(t *testing.T) {
	for i := range 20 {
		d := newDisturbed(uint64(i), 100*time.Microsecond, 12*time.Second)
		d.distance, d.rate = 1500*mi, 400*mi
		from := d.growsAt.Add(time.Duration(i)*50*time.Millisecond - 2*time.Second)
		d.noise = func(at time.Time) int64 {
			if at.Before(from) || at.After(from.Add(300*time.Millisecond)) {
				return 0
			}
			return 800 * mi
		}
		d.more = func(pod int, at time.Time) int64 {
			if pod > 0 {
				return 0
			}
			return d.noise(at)
		}
		collected := false
		d.between = func(w *Watcher) {
			if begun := from.Add(100 * time.Millisecond); !collected && d.now.After(begun.Add(50*time.Millisecond)) {
				d.collect(w, d, begun)
				collected = true
			}
		}
		_, _, r := d.cross(t)
		if used := int64(r.ByPod["idle-0"].WorkingSet.Amount); used > 2*mi {
			t.Errorf("run %d: a pod of 1 MiB uses %d MiB by the reading", i, used/mi)
		}
	}
}

// A hog that has been measured crosses the threshold beside pods at rest, whose counters vary by just 64 pages. It is
// decided on when the crossing is read: none of these can be as fast.
func TestDecisionOnAMeasuredHogDoesNotWaitForPodsAtRest(t *testing.T) {
	const each, rate = 300 * time.Millisecond, 1000
	for _, counters := range []time.Duration{100 * time.Microsecond, time.Millisecond} {
		var times []time.Duration
		for i := range 40 {
			d := newDisturbed(uint64(i), counters, restOf(i))
			d.others, d.rate = 30, rate*mi
			d.more = func(pod int, at time.Time) int64 {
				at = at.Add(time.Duration(pod) * each / 30)
				return batch * (at.UnixNano() / int64(each/2) % 2)
			}
			read, decided, _ := d.cross(t)
			times = append(times, decided-read)
		}
		slices.Sort(times)
		if median := times[len(times)/2]; median > 5*time.Millisecond {
			t.Errorf("counters in %v: median %v, maximum %v from the read to the decision", counters, median,
				times[len(times)-1])
		}
	}
}
