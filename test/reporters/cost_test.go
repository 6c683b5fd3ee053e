package reporters

import (
	"maps"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxCores = 0.4
	// maxGrowth is how much more memory the agent may have than without plugins, in bytes.
	maxGrowth = 48 << 20
	// maxHeapGrowth is how much larger the heap in use may be at the end than when the load has lasted a quarter of its
	// time.
	maxHeapGrowth = 4 << 20
	sampleTime    = time.Second
)

func goroutines() int { return runtime.NumGoroutine() }

// meter measures what this process costs: the agent, and the API server of the test. It does nothing on a fake clock,
// when the plugins are in this process too.
type meter struct {
	t        *testing.T
	off      bool
	resident uint64 // before
	samples  []sample
	cores    float64
	took     time.Duration
}

// sample is what the process has at a time, in bytes.
type sample struct{ heap, resident uint64 }

// meter returns a meter. What the process has now is the base.
func (r *rig) meter() *meter {
	r.t.Helper()
	m := &meter{t: r.t, off: r.fake != nil}
	if !m.off {
		debug.FreeOSMemory()
		m.resident = m.now().resident
	}
	return m
}

// during measures until f returns.
func (m *meter) during(f func()) {
	m.t.Helper()
	if m.off {
		f()
		return
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(sampleTime)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				m.samples = append(m.samples, m.now())
			case <-stop:
				return
			}
		}
	}()
	begun, before := time.Now(), m.processorTime()
	f()
	m.took = time.Since(begun)
	m.cores = (m.processorTime() - before).Seconds() / m.took.Seconds()
	close(stop)
	<-stopped
}

// check reports what was measured, and compares it with the limits.
func (m *meter) check() {
	m.t.Helper()
	if m.off {
		return
	}
	if len(m.samples) < 8 {
		m.t.Fatalf("%d samples in %v", len(m.samples), m.took)
	}
	var most uint64
	for _, s := range m.samples {
		most = max(most, s.resident)
	}
	growth := int64(most) - int64(m.resident)
	quarter := len(m.samples) / 4
	early, late := medianHeap(m.samples[quarter:2*quarter]), medianHeap(m.samples[3*quarter:])
	m.t.Logf("agent and API server of the test in %v: %.2f cores; resident %d MiB, %+.1f MiB more than without plugins; "+
		"heap in use %.1f MiB in the second quarter, %.1f MiB in the last one", m.took.Round(time.Second), m.cores,
		most>>20, mebibytes(growth), mebibytes(int64(early)), mebibytes(int64(late)))
	if m.cores > maxCores {
		m.t.Errorf("%.2f cores, more than %.2f", m.cores, maxCores)
	}
	if growth > maxGrowth {
		m.t.Errorf("%.1f MiB more than without plugins, limit %d MiB", mebibytes(growth), maxGrowth>>20)
	}
	if late > early+maxHeapGrowth {
		m.t.Errorf("the heap in use grows: %.1f MiB, then %.1f MiB", mebibytes(int64(early)), mebibytes(int64(late)))
	}
}

func mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

func medianHeap(samples []sample) uint64 {
	var list []uint64
	for _, s := range samples {
		list = append(list, s.heap)
	}
	slices.Sort(list)
	return list[len(list)/2]
}

// now returns a sample. The heap is what the last garbage collection has found in use.
func (m *meter) now() (s sample) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	s.heap = live[0].Value.Uint64()
	// The second field is the resident set, in pages: proc_pid_statm(5).
	data, err := os.ReadFile("/proc/self/statm")
	if err == nil {
		s.resident, err = strconv.ParseUint(strings.Fields(string(data))[1], 10, 64)
	}
	if err != nil {
		m.t.Error(err)
	}
	s.resident *= uint64(os.Getpagesize())
	return s
}

// processorTime returns the CPU time of this process.
func (m *meter) processorTime() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		m.t.Error(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// writeCounter counts requests that write the object, by its part.
type writeCounter struct {
	mu     sync.Mutex
	byPart map[string]int
}

func (c *writeCounter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet {
			part := "main"
			if strings.HasSuffix(r.URL.Path, "/status") {
				part = "status"
			}
			c.mu.Lock()
			if c.byPart == nil {
				c.byPart = map[string]int{}
			}
			c.byPart[part]++
			c.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

// counts returns how many requests there were.
func (c *writeCounter) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.byPart)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
