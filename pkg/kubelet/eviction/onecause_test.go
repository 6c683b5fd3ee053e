package eviction

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Thirty small pods of lower priority together use more than a leak will grow in the next minutes, as they do where the
// kernel backs memory with huge pages: the leak, which grows by 2 MiB at a time there, is evicted all the same, and
// none of them.
func TestD23OneLeakBesideLargerPods(t *testing.T) {
	for _, rate := range []int64{1, 2, 20} {
		for _, step := range []int64{0, 2 * mi} {
			wrong := 0
			for phase := range 8 {
				synctest.Test(t, func(t *testing.T) {
					n := newNode()
					for i := range 30 {
						n.add(fmt.Sprintf("small-%02d", i), 11*mi, memoryRequest(mi))
					}
					n.add("leak", 1200*mi, priority(1), memoryRequest(64*mi)).step = step
					n.available(512*mi + rate*60*mi)
					c := n.config(t, hard("512Mi"))
					c.Memory, c.Options = &kernel{node: n}, fencesOn()
					n.killTakes = 4 * time.Second
					run(t, n, c, func(_ *Manager, wait func(time.Duration)) {
						wait(3*time.Second + time.Duration(phase)*1217*time.Millisecond)
						n.grows("leak", rate*mi)
						wait(100 * time.Second)
						if got := n.killed(); len(got) != 1 || got[0] != "leak/1" {
							wrong++
							t.Logf("%d MiB/s in steps of %d, phase %d: %v", rate, step, phase, got)
						}
					})
				})
			}
			if wrong > 0 {
				t.Errorf("%d MiB/s in steps of %d: %d of 8 wrong", rate, step, wrong)
			}
		}
	}
}
