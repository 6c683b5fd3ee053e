package pluginchaos

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/plimsoll-project/plimsoll/test/await"
)

const (
	timeVariable = "PLIMSOLL_PLUGIN_CHAOS"
	chaosPeriod  = 250 * time.Millisecond
	// crossingPeriod is the time between two crossings of the memory threshold.
	crossingPeriod = 430 * time.Millisecond
	// shortChaos is how long chaos lasts when nothing is compared, shortAlone the time before.
	shortChaos, shortAlone = 20 * time.Second, 2 * time.Second
	maxHeap                = 64 << 20
	maxGoroutines          = 5
)

// phase is a time in which plugins misbehave, or the honest ones are alone.
type phase struct {
	chaotic  bool
	from, to time.Duration
	// heap is the largest heap after a collection of garbage, in bytes.
	heap       uint64
	goroutines int
}

// run is one run of the test.
type run struct {
	*agent
	honest *child
	chaos  []*child
	phases []phase
}

// TestChaos: plugins that hang, crash and lie have no effect on honest plugins, on evictions by the node, or on the
// memory and goroutines of the agent; and no pod is evicted that no plugin has validly named.
func TestChaos(t *testing.T) {
	total, compare := chaosTime(t)
	before := runtime.NumGoroutine()
	r := &run{agent: startAgent(t, chaosPeriod)}
	r.honest = startChild(t, "honest", r.directory)
	await.Until(t, "honest plugins", r.registered("honest", plugins))
	if compare {
		for range 3 {
			r.alone(t, total/6)
			r.chaotic(t, total/6)
		}
	} else {
		r.alone(t, shortAlone)
		r.chaotic(t, shortChaos)
	}
	await.Until(t, "all pods that honest plugins have named are evicted", r.served)
	r.honest.stop(t)
	r.stop()
	await.Until(t, "goroutines end", func() error { return atMost(runtime.NumGoroutine(), before+maxGoroutines) })
	r.checkKills(t)
	r.checkMemory(t)
	r.checkBehavior(t)
	r.report(t)
	if compare {
		r.checkLatencies(t)
	}
}

func chaosTime(t *testing.T) (total time.Duration, compare bool) {
	text := os.Getenv(timeVariable)
	if text == "" {
		return 0, false
	}
	total, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(timeVariable, ": ", err)
	}
	return total, true
}

func atMost(n, limit int) error {
	if n > limit {
		return fmt.Errorf("%d, want at most %d", n, limit)
	}
	return nil
}

func (r *run) alone(t *testing.T, d time.Duration) { r.phase(t, false, d) }

// chaotic is a phase with all plugins. Afterwards all goroutines for the chaotic ones end.
func (r *run) chaotic(t *testing.T, d time.Duration) {
	c := startChild(t, "chaos", r.directory)
	r.chaos = append(r.chaos, c)
	r.phase(t, true, d)
	c.stop(t)
	await.Until(t, "chaotic plugins end", r.registered("", plugins))
	limit := r.phases[0].goroutines + maxGoroutines
	await.Until(t, "goroutines of chaotic plugins end", func() error { return atMost(runtime.NumGoroutine(), limit) })
}

// phase lets memory cross its threshold again and again. A chaotic one lasts until a pod was evicted that a lying
// plugin has validly named: that takes longer on a busy machine.
func (r *run) phase(t *testing.T, chaotic bool, d time.Duration) {
	p := phase{chaotic: chaotic, from: monotonic()}
	crossings, samples := time.NewTicker(crossingPeriod), time.NewTicker(time.Second)
	defer crossings.Stop()
	defer samples.Stop()
	end := time.NewTimer(d)
	for done := false; !done; {
		select {
		case <-crossings.C:
			if r.node.cross() {
				r.manager.Load().Nudge()
			}
		case <-samples.C:
			p.sample()
			r.driver.List()
		case <-end.C:
			done = true
		}
	}
	if chaotic {
		await.Until(t, "an eviction of a lying plugin", r.baited)
	}
	p.sample()
	p.to = monotonic()
	r.phases = append(r.phases, p)
}

// baited returns an error until a pod was evicted that a lying plugin has validly named.
func (r *run) baited() error {
	kills, _ := r.node.recorded()
	if seen, _ := judge(kills, func(string) string { return "" }); seen["bait "+lyingName(0)] == 0 {
		return errors.New("none of " + lyingName(0))
	}
	return nil
}

func (p *phase) sample() {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	p.heap = max(p.heap, m.HeapAlloc)
	p.goroutines = max(p.goroutines, runtime.NumGoroutine())
}

// served returns an error while a pod that an honest plugin has named is not killed.
func (r *run) served() error {
	killed := map[string]bool{}
	kills, _ := r.node.recorded()
	for _, k := range kills {
		killed[k.pod] = true
	}
	r.honest.mu.Lock()
	defer r.honest.mu.Unlock()
	for pod, n := range r.honest.named {
		// The plugins go on naming pods, so that those of the last round may not be killed yet.
		if !killed[pod] && monotonic()-n.at > 4*chaosPeriod {
			return fmt.Errorf("%s was named by %s and is not killed", pod, n.plugin)
		}
	}
	return nil
}

var byPlugin = regexp.MustCompile(`^Eviction requested by plugin (\S+) \(scope`)

// stolen has the names under which lying plugins also register.
var stolen = map[string]string{"1": "crashing-0"}

// checkKills checks that each pod was killed for the plugin that named it, or for memory.
func (r *run) checkKills(t *testing.T) {
	kills, crossings := r.node.recorded()
	seen, errs := judge(kills, func(pod string) string { return r.honest.named[pod].plugin })
	for _, err := range errs {
		t.Errorf("%v; %s", err, r.memory.round(err.pod))
	}
	t.Logf("evictions: %v, crossings %d", seen, len(crossings))
	want := []string{"hog ", "bait " + lyingName(0)}
	for i := range plugins {
		want = append(want, "honest "+honestName(i))
	}
	for _, kind := range want {
		if seen[kind] == 0 {
			t.Error("no evictions: ", kind)
		}
	}
}

func (r *run) checkMemory(t *testing.T) {
	base := r.phases[0].heap
	for _, p := range r.phases {
		if p.heap > base+maxHeap {
			t.Errorf("the heap has %d MiB, without chaos %d MiB", p.heap>>20, base>>20)
		}
	}
}

// checkBehavior checks that plugins have hung, crashed and lied.
func (r *run) checkBehavior(t *testing.T) {
	for _, c := range r.chaos {
		t.Log("behavior: ", c.counts)
		for _, what := range []string{"hang", "be silent", "crash", "lie"} {
			if c.counts[what] == 0 {
				t.Errorf("no plugin did %q", what)
			}
		}
	}
	if n := len(r.driver.Conditions()); n > 64 {
		t.Errorf("%d conditions", n)
	}
}

// latencies are the times from the answers of honest plugins to kills, and from crossings to kills, in one phase.
func (r *run) latencies(p phase) (answers, crossings []time.Duration) {
	kills, all := r.node.recorded()
	seen := map[string]bool{}
	for _, k := range kills {
		named, ok := r.honest.named[k.pod]
		if ok && !seen[k.pod] && p.from <= named.at && named.at < p.to {
			answers = append(answers, k.at-named.at)
		}
		seen[k.pod] = true
	}
	for _, c := range all {
		if p.from <= c.at && c.at < p.to {
			crossings = append(crossings, c.killed-c.at)
		}
	}
	slices.Sort(answers)
	slices.Sort(crossings)
	return answers, crossings
}

// percentile returns the smallest value that so many percent do not exceed; the list is sorted.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

func (r *run) report(t *testing.T) {
	for _, p := range r.phases {
		answers, crossings := r.latencies(p)
		t.Logf("chaos %5t: %v, heap %d MiB, %d goroutines", p.chaotic, (p.to - p.from).Round(time.Second), p.heap>>20,
			p.goroutines)
		for what, list := range map[string][]time.Duration{"answer to kill": answers, "crossing to kill": crossings} {
			t.Logf("   %-16s n=%d p50 %v p90 %v p99 %v max %v", what, len(list), percentile(list, 50), percentile(list, 90),
				percentile(list, 99), percentile(list, 100))
		}
	}
}

// checkLatencies compares the medians of the 99th percentiles.
func (r *run) checkLatencies(t *testing.T) {
	p99 := map[string][]time.Duration{}
	for _, p := range r.phases {
		answers, crossings := r.latencies(p)
		for what, list := range map[string][]time.Duration{"answer": answers, "crossing": crossings} {
			key := fmt.Sprint(what, p.chaotic)
			p99[key] = append(p99[key], percentile(list, 99))
		}
	}
	for _, key := range slices.Collect(maps.Keys(p99)) {
		slices.Sort(p99[key])
	}
	for _, what := range []string{"answer", "crossing"} {
		alone, chaos := p99[what+"false"][1], p99[what+"true"][1]
		t.Logf("%s to kill, median of the p99: alone %v, chaos %v", what, alone, chaos)
		if chaos > alone*11/10+10*time.Millisecond {
			t.Errorf("%s to kill: p99 %v with chaos, alone %v", what, chaos, alone)
		}
	}
}
