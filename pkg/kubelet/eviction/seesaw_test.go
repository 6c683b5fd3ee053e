package eviction

import (
	"fmt"
	"testing"
	"time"
)

// seesaws has a pod take memory at a rate for a period, free all of that at once, and begin again, for so long.
func (b *burst) seesaws(wait func(time.Duration), name string, rate int64, period, lasts time.Duration) {
	b.mu.Lock()
	base := b.pods[name].memory
	b.mu.Unlock()
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		b.mu.Lock()
		b.pods[name].memory, b.pods[name].growth, b.pods[name].since = base, rate, time.Now()
		b.mu.Unlock()
		wait(min(period, time.Until(end)))
	}
}

// The usage of a pod goes up and down several times a second, as that of a program that collects garbage, so that it
// uses up nothing in the end. A process outside of pods crosses the threshold. The first of the ranking is the victim.
func TestSeesawBesideACrossingOfTheSystem(t *testing.T) {
	for _, test := range []struct {
		threshold, rate int64
		period          time.Duration
	}{
		{100, 40, 250 * time.Millisecond}, {100, 40, 500 * time.Millisecond}, {200, 200, 125 * time.Millisecond},
		{300, 100, 500 * time.Millisecond},
	} {
		var victims []string
		wrong := inPhases(t, 16, 51731*time.Microsecond, func(t *testing.T, rest time.Duration) bool {
			b := newBurst(t, 50*mi, 0, "seesaw")
			b.capacity = 512 * gi
			b.add("big", 200*gi)
			newStoppedBurst(t, b, 20*time.Second)
			b.config.Thresholds = b.node.config(t, hard(fmt.Sprintf("%dMi", test.threshold))).Thresholds
			swing := test.rate * mi * int64(test.period) / int64(time.Second)
			b.available(test.threshold*mi + swing + 20*mi)
			run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
				wait(12 * time.Second)
				time.AfterFunc(2*time.Second+rest-12*time.Second, func() {
					b.mu.Lock()
					defer b.mu.Unlock()
					b.system += swing + 25*mi
				})
				b.seesaws(wait, "seesaw", test.rate*mi, test.period, 4*time.Second+rest-12*time.Second)
				victims = append(victims, podsOf(b.fencer.victims()))
			})
			return victims[len(victims)-1] == "big"
		})
		if wrong > 0 {
			t.Errorf("threshold %d MiB, %d MiB/s for %v: %d of 16 are wrong: %q", test.threshold, test.rate, test.period,
				wrong, victims)
		}
	}
}
