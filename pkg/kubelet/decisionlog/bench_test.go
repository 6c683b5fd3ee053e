package decisionlog

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/simulate"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog/trace"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// BenchmarkRecord measures what a round costs the goroutine that decides (kept=false: a round of a quiet node) and that
// of the sink (kept=true), with ten clients that watch.
func BenchmarkRecord(b *testing.B) {
	for _, starved := range []bool{false, true} {
		b.Run(fmt.Sprintf("pods=110/starved=%t", starved), func(b *testing.B) {
			w := newWorld(b, 110, Config{})
			for range 10 {
				n, err := w.log.Watch()
				if err != nil {
					b.Fatal(err)
				}
				go func() {
					for range n.Events() {
					}
				}()
				defer w.log.Unwatch(n)
			}
			if starved {
				w.available = gi / 2
			}
			for range 5 {
				w.round(10 * time.Second)
			}
			r := w.round(time.Hour)
			b.ReportAllocs()
			for b.Loop() {
				w.log.Round(b.Context(), r)
			}
		})
	}
	b.Run("pods=110/kept=false", func(b *testing.B) {
		w := newWorld(b, 110, Config{})
		w.round(time.Hour)
		r := w.round(time.Second)
		b.ReportAllocs()
		for b.Loop() {
			if w.log.Recorded(r.Snapshot) || w.log.NeedsRound(r) {
				b.Fatal("the round is kept")
			}
		}
	})
}

// The memory of a full log is at most its bound and 4 MiB, with ten clients.
func TestMemoryOfAFullLog(t *testing.T) {
	const limit = 2 << 20
	w := newWorld(t, 110, Config{LimitBytes: limit})
	for range 10 {
		if _, err := w.log.Watch(); err != nil {
			t.Fatal(err)
		}
	}
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := inUse()
	dropped := func() bool { return w.log.ring.records[0].time.After(start.Add(time.Hour)) }
	for i := 0; i < 20000 && (i == 0 || !dropped()); i++ {
		w.available = gi/2 + int64(i%50)*100*mi
		for j := range w.usage {
			w.usage[j] = int64((i*7919+j*104729)%1000) * mi / 7
		}
		w.round(5 * time.Second)
	}
	if !dropped() {
		t.Fatalf("the log is not full: %+v", w.log.state())
	}
	if used := int64(inUse() - before); used > limit+4<<20 {
		t.Errorf("%d KiB are in use, %d KiB are counted", used>>10, w.log.state().Bytes>>10)
	} else {
		t.Logf("%d KiB are in use, %d KiB are counted, %d records", used>>10, w.log.state().Bytes>>10, w.log.state().Records)
	}
	runtime.KeepAlive(w)
}

// BenchmarkDay makes the decisions of a day of a quiet node with 110 pods again, from its trace, with another
// threshold.
func BenchmarkDay(b *testing.B) {
	w := newWorld(b, 110, Config{LimitBytes: 256 << 20})
	for range 24 * 60 {
		w.round(time.Minute)
	}
	var text bytes.Buffer
	if err := w.log.WriteTrace(&text, &Query{}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(w.log.state().Bytes)/(1<<20), "MiB-in-memory")
	b.ReportMetric(float64(text.Len())/(1<<20), "MiB-trace")
	other := *w.rules
	other.Thresholds = slices.Clone(other.Thresholds)
	other.Thresholds[0].Value.Quantity = resource.NewQuantity(9*gi, resource.BinarySI)
	for b.Loop() {
		s := simulate.New(simulate.Settings{Rules: func(*policy.Rules, snapshot.Layout) (*policy.Rules, error) {
			return &other, nil
		}})
		var d trace.Decoder
		for line := range bytes.Lines(text.Bytes()) {
			l, err := d.Decode(line)
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Add(&l); err != nil {
				b.Fatal(err)
			}
		}
		if r := s.Result(); r.Decisions != 24*60 || len(r.Planned) == 0 {
			b.Fatalf("%d decisions, %d evictions", r.Decisions, len(r.Planned))
		}
	}
}
