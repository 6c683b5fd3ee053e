package eviction

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/settings"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/exacttimer"
)

// exactAlarm returns the alarm of a real node.
func exactAlarm(t *testing.T) Alarm {
	timer, err := exacttimer.New()
	if err != nil {
		t.Error(err)
		return nil
	}
	return timer
}

// summaryCalls counts the collections.
type summaryCalls struct {
	*node
	calls atomic.Int64
	// called has room for one token.
	called chan struct{}
}

func (s *summaryCalls) Get(ctx context.Context, update bool) (*statsapi.Summary, error) {
	s.calls.Add(1)
	signal(s.called)
	return s.node.Get(ctx, update)
}

// TestNothingThatWasSentIsMissed: the loop waits for one thing only, its alarm, whose time is set again after each
// tick. So whatever is sent must wake it up, at any moment: here it would wait for an hour otherwise.
func TestNothingThatWasSentIsMissed(t *testing.T) {
	for name, newAlarm := range map[string]func() Alarm{"kernel": func() Alarm { return exactAlarm(t) }, "clock": nil} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := &summaryCalls{node: newNode(), called: make(chan struct{}, 1)}
			config := s.config(t, hard("1Gi"))
			config.Collector, config.NewAlarm = s.collector(t, s), newAlarm
			config.Options = new(settings.DefaultOptions())
			config.Options.MonitoringPeriod = time.Hour
			m, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			var running, sending sync.WaitGroup
			running.Go(func() { m.Run(ctx) })
			for i := range 3000 {
				before := s.calls.Load()
				if i%3 == 0 { // Nudges, which collect nothing, come at other moments.
					sending.Go(m.Nudge)
				}
				for m.Wake(); s.calls.Load() == before; {
					select {
					case <-s.called:
					case <-ctx.Done():
						t.Fatalf("no collection follows wake %d", i)
					}
				}
			}
			sending.Wait()
			cancel()
			running.Wait()
			m.Wake() // It is allowed at any time.
		})
	}
}
