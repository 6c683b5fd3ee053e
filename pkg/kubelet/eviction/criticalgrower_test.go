package eviction

import (
	"strings"
	"testing"
	"time"

	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
)

// While a hard threshold is met, a static pod grows on and on, which is no victim, and as much is freed outside of
// pods. Decisions about that leave enough of the credit: a hog that begins then is found before it has used up a third
// of what is left.
func TestHogBesideAStaticPodThatGrows(t *testing.T) {
	const step = 2 * time.Millisecond
	for _, full := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 40 * time.Millisecond} {
		for _, rate := range []int64{30, 60} {
			late := inPhases(t, 6, 21731*time.Microsecond, func(t *testing.T, rest time.Duration) (right bool) {
				b := newBurst(t, 50*mi, 0, "first", "static", "second")
				b.pods["static"].object.Annotations = map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}
				k := &billed{priced: b.pricedKernel()}
				k.counters, k.usages, k.full = 100*time.Microsecond, 700*time.Microsecond, full
				b.config.Memory, b.killTakes = k, 10*time.Hour
				run(t, b.node, b.config, func(_ *Manager, wait func(time.Duration)) {
					b.meetsThreshold(wait, 60*mi)
					b.grows("static", rate*mi)
					for begin := time.Now(); time.Since(begin) < rest%time.Second+4*time.Second; {
						wait(step)
						b.mu.Lock()
						b.system -= rate * mi * int64(step) / int64(time.Second)
						b.mu.Unlock()
					}
					b.freeze("static")
					left := b.left()
					b.grows("second", 100*mi)
					for b.left() > left*2/3 && !right {
						wait(time.Millisecond / 2)
						right = strings.Contains(podsOf(b.fencer.victims()), "second")
					}
				})
				return right
			})
			if late > 0 {
				t.Errorf("a reading takes %v, the static pod grows by %d MiB/s: %d of 6 are late", full, rate, late)
			}
		}
	}
}
