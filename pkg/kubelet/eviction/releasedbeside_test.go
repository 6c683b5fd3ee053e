package eviction

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// newExchange returns a node of which a large pod at rest is the first of the ranking. Two other pods may exchange
// memory, so that nothing is used up.
func newExchange(t *testing.T, killTakes time.Duration) *burst {
	t.Helper()
	b := newBurst(t, 50*mi, 0, "taker", "giver", "job")
	b.capacity = 128 * gi
	b.add("big", 4*gi)
	b.pods["giver"].memory, b.pods["job"].memory = 3*gi, 20*mi
	newStoppedBurst(t, b, killTakes)
	return b
}

// setCache sets how much page cache a pod has.
func (b *burst) setCache(name string, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[name].cached = bytes
}

// A large pod is being evicted, and will release enough, while two others exchange memory. Then page cache of the large
// pod, or of a job that ends, is freed. It was available before, so no pod counts as growing because of it.
func TestFreedPageCacheBesideAnExchange(t *testing.T) {
	scenes := map[string]func(*burst){
		"nothing": func(*burst) {},
		"victim":  func(b *burst) { b.setCache("big", 0) },
		"job": func(b *burst) {
			b.setCache("job", 0)
			b.mu.Lock()
			defer b.mu.Unlock()
			b.pods["job"].stopped = true
		},
	}
	for name, free := range scenes {
		for _, rate := range []int64{60, 150, 300} {
			var victims []string
			wrong := inPhases(t, 4, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
				b := newExchange(t, 20*time.Second)
				b.setCache("big", 2*gi)
				b.setCache("job", 2*gi)
				b.available(150 * mi)
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					wait(rest)
					b.available(30 * mi)
					wait(2 * time.Second)
					b.grows("taker", rate*mi)
					b.grows("giver", -rate*mi)
					wait(time.Second)
					free(b)
					wait(3 * time.Second)
					victims = append(victims, podsOf(b.fencer.victims()))
				})
				return victims[len(victims)-1] == "big"
			})
			if wrong > 0 {
				t.Errorf("page cache of %s, %d MiB/s: %d of 4 are wrong: %q", name, rate, wrong, victims)
			}
		}
	}
}

// The kill of a large pod has failed, and it lives on for minutes. Then it is not being evicted any more: what it frees
// beside two pods that exchange memory makes neither of them count as growing.
func TestVictimThatLivesOnFreesMemory(t *testing.T) {
	for _, fails := range []bool{false, true} {
		var victims []string
		wrong := inPhases(t, 4, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
			b := newExchange(t, time.Second)
			b.setCache("big", gi)
			b.available(150 * mi)
			first := 0
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				if fails {
					b.failKill("big", errors.New("no kill"))
					b.available(95 * mi)
					wait(500 * time.Millisecond)
					first = len(b.fencer.victims())
					b.available(2 * gi)
					wait(5 * time.Minute)
					b.failKill("big", nil)
				}
				b.available(105 * mi)
				wait(2 * time.Second)
				b.grows("taker", 150*mi)
				b.grows("giver", -150*mi)
				wait(1500 * time.Millisecond)
				b.setCache("big", gi/2)
				wait(200 * time.Millisecond)
				b.available(98 * mi) // A process outside of pods has crossed the threshold.
				wait(500 * time.Millisecond)
				victims = append(victims, podsOf(b.fencer.victims()[first:]))
			})
			return victims[len(victims)-1] == "big"
		})
		if wrong > 0 {
			t.Errorf("the kill failed before: %t: %d of 4 are wrong: %q", fails, wrong, victims)
		}
	}
}

// A large pod is being evicted, and will release enough. A hog beside it was fenced and has ended. Its cgroup is gone,
// but not what it used: that is page cache, which is charged to the cgroup above now. So it does not explain why two
// other pods that exchange memory use up nothing.
func TestPageCacheOutlastsTheCgroupOfAVictim(t *testing.T) {
	for _, rate := range []int64{200, 300} {
		var victims []string
		wrong := inPhases(t, 6, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
			b := newExchange(t, time.Minute)
			b.pods["job"].memory = 2 * gi
			b.available(150 * mi)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(rest)
				b.available(90 * mi)
				wait(2 * time.Second)
				b.grows("job", 200*mi)
				wait(300 * time.Millisecond)
				b.available(30 * mi)
				wait(3 * time.Second)
				b.grows("taker", rate*mi)
				b.grows("giver", -rate*mi)
				wait(time.Second)
				b.mu.Lock()
				b.pods["job"].stopped, b.uncleaned["job"] = true, true
				b.mu.Unlock()
				wait(2 * time.Second)
				victims = append(victims, podsOf(b.fencer.victims()))
			})
			return victims[len(victims)-1] == "big, job"
		})
		if wrong > 0 {
			t.Errorf("%d MiB/s: %d of 6 are wrong: %q", rate, wrong, victims)
		}
	}
}

// A plugin requests a large pod, and the API server does not accept the eviction: the pod lives on, and is not being
// evicted. What it frees is what any pod frees: beside two pods that exchange memory it makes neither count as growing.
func TestRequestedPodThatTheAPIServerDoesNotEvictFreesMemory(t *testing.T) {
	var victims []string
	wrong := inPhases(t, 4, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
		b := newExchange(t, time.Second)
		b.available(150 * mi)
		api, a := &fakeAPI{}, &asking{}
		b.config.Requests, b.config.APIKiller = api.of(a), api
		run(t, b.node, b.config, func(m *Manager, wait func(time.Duration)) {
			wait(rest)
			b.available(105 * mi)
			wait(2 * time.Second)
			a.set(m, byAPI(requestOf("big", false, 30)))
			wait(100 * time.Millisecond)
			expect(t, "requests", len(api.seen()), 1)
			first := len(b.fencer.victims())
			b.grows("taker", 150*mi)
			b.grows("giver", -150*mi)
			wait(1500 * time.Millisecond)
			b.mu.Lock()
			b.pods["big"].memory -= gi / 2
			b.system += gi/2 + 3*mi // A process outside of pods takes that.
			b.mu.Unlock()
			wait(200 * time.Millisecond)
			b.available(98 * mi) // And it crosses the threshold.
			wait(500 * time.Millisecond)
			api.attempt("big").endings <- APIEnding{Outcome: APIGaveUp}
			victims = append(victims, podsOf(b.fencer.victims()[first:]))
		})
		return victims[len(victims)-1] == "big"
	})
	if wrong > 0 {
		t.Errorf("%d of 4 are wrong: %q", wrong, victims)
	}
}

// failKill sets the error of kills of a pod, nil for none.
func (b *burst) failKill(name string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if delete(b.killErrs, name); err != nil {
		b.killErrs[name] = err
	}
}

// A pod grows slowly, takes some MiB more at once again and again, and frees them, as a program that collects garbage
// does. Beside a hog, whose kill takes long, it is no victim for that.
func TestPodThatTakesStepsBesideAHog(t *testing.T) {
	for _, test := range []struct{ threshold, step int64 }{{100, 5}, {300, 5}, {300, 12}} {
		var victims []string
		wrong := inPhases(t, 8, 51731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
			b := newBurst(t, test.threshold*mi, 0, "hog", "stepper")
			b.capacity = 128 * gi
			s := newStoppedBurst(t, b, 20*time.Second)
			b.config.Thresholds = b.node.config(t, hard(fmt.Sprintf("%dMi", test.threshold))).Thresholds
			b.available(test.threshold*mi + 2*gi)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(12 * time.Second)
				b.grows("stepper", mi)
				b.available(test.threshold*mi + 60*mi)
				never := func() bool { return false }
				b.stepping(wait, test.step*mi, rest-10*time.Second, never)
				b.grows("hog", 100*mi)
				b.stepping(wait, test.step*mi, 4*time.Second, func() bool { return s.hasFenced("hog") })
				b.stepping(wait, test.step*mi, 3*time.Second, never)
				victims = append(victims, podsOf(b.fencer.victims()))
			})
			return victims[len(victims)-1] == "hog"
		})
		if wrong > 0 {
			t.Errorf("threshold %d MiB, steps of %d MiB: %d of 8 are wrong: %q", test.threshold, test.step, wrong, victims)
		}
	}
}

// stepping has a pod take so much more at once every 600 ms, and free it at each third time, until so much time has
// passed or it is done.
func (b *burst) stepping(wait func(time.Duration), step int64, lasts time.Duration, done func() bool) {
	const every = 600 * time.Millisecond
	held, next := int64(0), time.Now().Add(every/2)
	for end := time.Now().Add(lasts); time.Now().Before(end) && !done(); wait(time.Millisecond) {
		if time.Now().Before(next) {
			continue
		}
		next = next.Add(every)
		more := step
		if held == 2*step {
			more = -held
		}
		held += more
		b.mu.Lock()
		b.pods["stepper"].memory += more
		b.mu.Unlock()
	}
}
