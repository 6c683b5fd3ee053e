package reporters

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/test/await"
)

const (
	// loadVariable has a duration: the tests of load and of hostile plugins then take so long each, on the real clock, and
	// what they cost is measured: the plugins are processes of their own. Otherwise two minutes pass on the fake clock,
	// and the plugins are in this process.
	loadVariable = "PLIMSOLL_REPORTER_LOAD"
	loadTime     = 2 * time.Minute
	sustained    = 10 * time.Second
	// messagePeriod is the time between two messages of a plugin, on the real clock.
	messagePeriod = 10 * time.Millisecond
)

// loadRig returns a rig with that time between writes, and the length of the test. The clock is the real one if
// loadVariable is set.
func loadRig(t *testing.T, sustained time.Duration) (r *rig, length time.Duration) {
	t.Helper()
	r = newRig(t, func(p *pressure.ReporterPluginsConfiguration) { p.Sustained = &metav1.Duration{Duration: sustained} })
	length, measured := measuredTime(t)
	if !measured {
		return r, loadTime
	}
	r.fake, r.clock = nil, clock.RealClock{}
	r.api.mu.Lock()
	r.api.clock = r.clock
	r.api.mu.Unlock()
	return r, length
}

func measuredTime(t *testing.T) (length time.Duration, measured bool) {
	t.Helper()
	text := os.Getenv(loadVariable)
	if text == "" {
		return 0, false
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(loadVariable, ": ", err)
	}
	return length, true
}

// pass lets time pass.
func (r *rig) pass(d time.Duration) {
	r.t.Helper()
	end := r.clock.Now().Add(d)
	for r.clock.Now().Before(end) {
		if r.fake != nil {
			r.fake.Step(time.Second)
		}
		select {
		case <-time.After(2 * messagePeriod): // of real time, so that plugins send messages meanwhile
		case <-r.t.Context().Done():
			return
		}
	}
}

// talkers are plugins that send messages all the time. Each has an annotation of its name, with the time at which the
// message was made.
type talkers struct {
	*rig
	names []string
	// stop ends them, sent returns how many messages they have sent. If they are a process, it is for after stop.
	stop func()
	sent func() int
}

// talk starts plugins that talk: in a process of their own when the clock is the real one.
func (r *rig) talk(names ...string) *talkers {
	r.t.Helper()
	l := &talkers{rig: r, names: names}
	if r.fake == nil {
		l.stop, l.sent = r.startChild(talkRole, names...)
		return l
	}
	var err error
	if l.stop, l.sent, err = talk(r.sockets, r.clock.Now, names...); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(l.stop)
	return l
}

// awaitPublished waits until the object has values of all plugins that were made after a time.
func (l *talkers) awaitPublished(after time.Time) {
	l.t.Helper()
	await.Until(l.t, "values of all plugins", func() error {
		l.pass(time.Millisecond)
		object := l.api.get()
		if object == nil {
			return fmt.Errorf("no object")
		}
		for _, name := range l.names {
			if at := madeAt(object.GetAnnotations(), name); !at.After(after) {
				return fmt.Errorf("the value of %s is of %v", name, at)
			}
		}
		return nil
	})
}

// madeAt is when the message was made that has the annotation of a plugin; the zero time without one.
func madeAt(annotations map[string]string, name string) time.Time {
	n, err := strconv.ParseInt(annotations["example.com/"+name], 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, n)
}

// neverBack checks that no version of the object has an older value than the one before it, and returns how old the
// values were when the next ones replaced them, sorted.
func (l *talkers) neverBack() (behind []time.Duration) {
	l.t.Helper()
	versions := l.api.history()
	for i := 1; i < len(versions); i++ {
		for _, name := range l.names {
			before, now := madeAt(versions[i-1].annotations, name), madeAt(versions[i].annotations, name)
			if now.Before(before) {
				l.t.Errorf("version %d: %s goes back from %v to %v", i, name, before, now)
			}
		}
	}
	return l.behind(time.Time{}, l.clock.Now())
}

// behind returns how old the values were when the next ones replaced them, between two times, sorted.
func (l *talkers) behind(from, to time.Time) (list []time.Duration) {
	versions := l.api.history()
	for i := 1; i < len(versions); i++ {
		for _, name := range l.names {
			before, at := madeAt(versions[i-1].annotations, name), versions[i].at
			if !before.IsZero() && !at.Before(from) && at.Before(to) {
				list = append(list, at.Sub(before))
			}
		}
	}
	slices.Sort(list)
	return list
}

// TestLoad: 30 plugins with 100 messages in a second each. Each part of the object is written five times at once and
// then once in ten seconds, the checkpoint once in five seconds, and no value ever goes back.
func TestLoad(t *testing.T) { //nolint:paralleltest // counts all writes of checkpoints
	r, length := loadRig(t, sustained)
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("p%02d", i))
	}
	checkpoints := checkpointWrites(t)
	r.start()
	m := r.meter()
	begin := r.clock.Now()
	l := r.talk(names...)
	l.awaitPublished(begin)
	m.during(func() { r.pass(length - r.clock.Since(begin)) })
	l.awaitPublished(begin.Add(length / 2))
	r.stop()
	took := r.clock.Since(begin)
	l.stop()
	writes, versions := r.writes.counts(), len(r.api.history())
	most := 5 + int(took/sustained) + 1
	for part, n := range writes {
		if n > most {
			t.Errorf("%d requests have written the part %s of the object in %v, want at most %d", n, part, took, most)
		}
	}
	if len(writes) == 0 || versions > most {
		t.Errorf("the object has had %d versions in %v, by %v requests; want at most %d", versions, took, writes, most)
	}
	written := checkpointWrites(t) - checkpoints
	if most := int(took/(5*time.Second)) + 2; written > most { // one at the end
		t.Errorf("the checkpoint was written %d times in %v, want at most %d", written, took, most)
	}
	behind := l.neverBack()
	p99 := percentile(behind, 99)
	sent := l.sent()
	t.Logf("%v: %d messages, requests %v, %d versions of the object, %d writes of the checkpoint; 99 of 100 values were "+
		"replaced after %v at most", took.Round(time.Second), sent, writes, versions, written, p99.Round(time.Millisecond))
	if r.fake == nil && p99 > sustained+2*time.Second {
		t.Errorf("99 of 100 values were replaced after %v at most", p99)
	}
	if all := len(names) * int(took/messagePeriod); r.fake == nil && sent < all*9/10 {
		t.Errorf("the plugins have sent %d messages, too few of %d for the measurement", sent, all)
	}
	m.check()
}

// percentile returns the smallest value that so many percent of a sorted list do not exceed.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

func checkpointWrites(t *testing.T) (sum int) {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "plimsoll_reporter_checkpoint_writes_total" {
			for _, m := range family.GetMetric() {
				sum += int(m.GetCounter().GetValue())
			}
		}
	}
	return sum
}

// TestHostilePlugins: five plugins hang, five crash, five lie, five are honest. What the honest ones report is
// published and never goes back; nothing else is published; no goroutine is left. On the real clock the honest ones are
// alone, and with the others, three times each: the others may not delay what they report.
func TestHostilePlugins(t *testing.T) { //nolint:paralleltest // counts all goroutines
	before := goroutines()
	t.Run("run", func(t *testing.T) { //nolint:paralleltest // as above
		// Once in a second at most, so that a delay is not hidden by the pace.
		r, length := loadRig(t, time.Second)
		honest := []string{"h0", "h1", "h2", "h3", "h4"}
		begin := r.clock.Now()
		r.start()
		l := r.talk(honest...)
		l.awaitPublished(begin)
		if r.fake == nil {
			l.compareHostile(length)
		} else {
			stop, err := misbehave(r.sockets)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(stop)
			// The clock is faster than processes start on a busy machine.
			await.Until(t, "an answer of a plugin that crashes in the object", func() error {
				r.pass(time.Second)
				return l.crashesPublished()
			})
			r.pass(length - r.clock.Since(begin))
			l.awaitPublished(begin.Add(length / 2))
		}
		t.Logf("99 of 100 values of honest plugins were replaced after %v at most", percentile(l.neverBack(), 99))
		l.nothingElse()
	})
	await.Until(t, "the end of goroutines", func() error { return fewGoroutines(before + maxGoroutines) })
}

// maxGoroutines is how many more goroutines there may be at the end than before.
const maxGoroutines = 5

func fewGoroutines(limit int) error {
	if n := goroutines(); n > limit {
		return fmt.Errorf("%d goroutines, want at most %d", n, limit)
	}
	return nil
}

// nothingElse checks that only honest plugins, and those that crash, were published.
func (l *talkers) nothingElse() {
	l.t.Helper()
	for i, v := range l.api.history() {
		for key := range v.annotations {
			name := strings.TrimPrefix(key, "example.com/")
			if !slices.Contains(l.names, name) && !strings.HasPrefix(name, "crash") {
				l.t.Errorf("version %d has the annotation %s", i, key)
			}
		}
		for _, text := range []string{"finalizers", "node-restriction", "topologyZone", "\"labels\"", "NaN"} {
			if strings.Contains(string(v.event), text) {
				l.t.Errorf("version %d has %s: %.2000s", i, text, v.event)
			}
		}
	}
	if err := l.crashesPublished(); err != nil {
		l.t.Error(err)
	}
	if n, _, _ := l.node.Node(); len(n.Labels)+len(n.Annotations)+len(n.Capacity)+len(n.Allocatable) > 0 {
		l.t.Errorf("the Node should have %+v", n)
	}
}

// crashesPublished returns an error if no answer of a plugin that crashes was ever published.
func (l *talkers) crashesPublished() error {
	for _, v := range l.api.history() {
		for key := range v.annotations {
			if strings.HasPrefix(key, "example.com/crash") {
				return nil
			}
		}
	}
	return errors.New("no plugin that crashes was ever published")
}

// compareHostile has the honest plugins alone, and with the hostile ones, three times each. The median of the 99th
// percentiles may be greater by a tenth and 100 ms. After each time with hostile ones their goroutines end.
func (l *talkers) compareHostile(length time.Duration) {
	l.t.Helper()
	var base int
	p99 := map[bool][]time.Duration{}
	for range 3 {
		for _, hostile := range []bool{false, true} {
			stop := func() {}
			if hostile {
				stop, _ = l.startChild(hostileRole)
			}
			from := l.clock.Now()
			l.pass(length / 6)
			behind := l.behind(from, l.clock.Now())
			p99[hostile] = append(p99[hostile], percentile(behind, 99))
			l.t.Logf("hostile plugins %5t: n=%d, p50 %v, p99 %v, max %v, %d goroutines", hostile, len(behind),
				percentile(behind, 50), percentile(behind, 99), percentile(behind, 100), goroutines())
			if base == 0 {
				base = goroutines()
			}
			stop()
			await.Until(l.t, "the end of hostile plugins", func() error {
				if n := len(l.host.Endpoints()); n != len(l.names) {
					return fmt.Errorf("%d plugins are registered, want %d", n, len(l.names))
				}
				return fewGoroutines(base + maxGoroutines)
			})
		}
	}
	for _, list := range p99 {
		slices.Sort(list)
	}
	alone, hostile := p99[false][1], p99[true][1]
	l.t.Logf("median of the p99: alone %v, with hostile plugins %v", alone, hostile)
	if hostile > alone*11/10+100*time.Millisecond {
		l.t.Errorf("values of honest plugins: p99 %v with hostile plugins, alone %v", hostile, alone)
	}
}
