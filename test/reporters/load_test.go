package reporters

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/clock"

	pressure "github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
	"github.com/plimsoll-project/plimsoll/test/await"
)

const (
	// loadVariable has a duration: the tests of load and of hostile plugins then take so long, on the real clock.
	// Otherwise two minutes pass on the fake one.
	loadVariable = "PLIMSOLL_REPORTER_LOAD"
	loadTime     = 2 * time.Minute
	sustained    = 10 * time.Second
	// messagePeriod is the time between two messages of a plugin, on the real clock.
	messagePeriod = 10 * time.Millisecond
)

// loadRig returns a rig whose writes are sustained for the length of the test, and that length.
func loadRig(t *testing.T) (r *rig, length time.Duration) {
	t.Helper()
	r = newRig(t, func(p *pressure.ReporterPluginsConfiguration) { p.Sustained = &metav1.Duration{Duration: sustained} })
	length = loadTime
	if text := os.Getenv(loadVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		r.fake, r.clock = nil, clock.RealClock{}
		r.api.mu.Lock()
		r.api.clock = r.clock
		r.api.mu.Unlock()
	}
	return r, length
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
	end   chan struct{}
	ended sync.WaitGroup
}

// talk starts plugins that talk.
func (r *rig) talk(names ...string) *talkers {
	r.t.Helper()
	l := &talkers{rig: r, names: names, end: make(chan struct{})}
	for _, name := range names {
		s := streamed(l.now(name))
		r.serve(name, name, s)
		l.ended.Go(func() {
			ticker := time.NewTicker(messagePeriod)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C:
					s.set(func(s *script) { s.message = []merge.Content{l.now(name)} })
				case <-l.end:
					return
				}
			}
		})
	}
	stop := sync.OnceFunc(func() { close(l.end); l.ended.Wait() })
	r.t.Cleanup(stop)
	return l
}

func (l *talkers) now(name string) merge.Content {
	return says(name, strconv.FormatInt(l.clock.Now().UnixNano(), 10))
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
			if !before.IsZero() {
				behind = append(behind, versions[i].at.Sub(before))
			}
		}
	}
	slices.Sort(behind)
	return behind
}

// TestLoad: 30 plugins with 100 messages in a second each. The object is written five times at once and then once in
// ten seconds, the checkpoint once in five seconds, and no value ever goes back.
func TestLoad(t *testing.T) { //nolint:paralleltest // counts all writes of checkpoints
	r, length := loadRig(t)
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("p%02d", i))
	}
	l := r.talk(names...)
	before, begin := checkpointWrites(t), r.clock.Now()
	r.start()
	l.awaitPublished(begin)
	r.pass(length - r.clock.Since(begin))
	l.awaitPublished(begin.Add(length / 2))
	r.stop()
	took := r.clock.Since(begin)
	if writes, most := len(r.api.history()), 5+int(took/sustained)+1; writes > most {
		t.Errorf("the object was written %d times in %v, want at most %d", writes, took, most)
	}
	if writes, most := checkpointWrites(t)-before, int(took/(5*time.Second))+2; writes > most { // one at the end
		t.Errorf("the checkpoint was written %d times in %v, want at most %d", writes, took, most)
	}
	behind := l.neverBack()
	p99 := behind[len(behind)*99/100]
	t.Logf("%v, %d writes, 99 of 100 values were replaced after %v at most", took, len(r.api.history()), p99)
	if r.fake == nil && p99 > sustained+2*time.Second {
		t.Errorf("99 of 100 values were replaced after %v at most", p99)
	}
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
// published and never goes back; nothing else is published; no goroutine is left.
func TestHostilePlugins(t *testing.T) { //nolint:paralleltest // counts all goroutines
	before := runtime.NumGoroutine()
	t.Run("run", func(t *testing.T) { //nolint:paralleltest // as above
		r, length := loadRig(t)
		honest := []string{"h0", "h1", "h2", "h3", "h4"}
		l := r.talk(honest...)
		h := &hostility{rig: r, end: make(chan struct{})}
		h.hang()
		h.lie()
		h.crash()
		begin := r.clock.Now()
		r.start()
		l.awaitPublished(begin)
		r.pass(length - r.clock.Since(begin))
		l.awaitPublished(begin.Add(length / 2))
		behind := l.neverBack()
		t.Logf("99 of 100 values of honest plugins were replaced after %v at most", behind[len(behind)*99/100])
		for i, v := range r.api.history() {
			for key := range v.annotations {
				name := strings.TrimPrefix(key, "example.com/")
				if !slices.Contains(honest, name) && !strings.HasPrefix(name, "crash") {
					t.Errorf("version %d has the annotation %s", i, key)
				}
			}
			for _, text := range []string{"finalizers", "node-restriction", "topologyZone", "\"labels\"", "NaN"} {
				if strings.Contains(string(v.event), text) {
					t.Errorf("version %d has %s: %.2000s", i, text, v.event)
				}
			}
		}
		if n, _, _ := r.node.Node(); len(n.Labels)+len(n.Annotations)+len(n.Capacity)+len(n.Allocatable) > 0 {
			t.Errorf("the Node should have %+v", n)
		}
	})
	await.Until(t, "the end of goroutines", func() error {
		if n := runtime.NumGoroutine(); n > before+5 {
			return fmt.Errorf("%d goroutines, %d before", n, before)
		}
		return nil
	})
}
