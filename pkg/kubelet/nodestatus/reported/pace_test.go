package reported

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"
)

func TestPace(t *testing.T) {
	var p Pace
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{0, 0, 0, 0, 0, 10} {
		if got := p.Take(now, 10*time.Second); got != want*time.Second {
			t.Errorf("write %d after %v", i, got)
		}
	}
	now = now.Add(time.Hour)
	if got := p.Take(now, 10*time.Second); got != 0 {
		t.Errorf("after a pause: %v", got)
	}
}

// A shorter interval is in force at once.
func TestPaceFollowsTheInterval(t *testing.T) {
	var p Pace
	now := time.Unix(1000, 0)
	for range 6 {
		p.Take(now, 5*time.Minute)
	}
	if got := p.Take(now, time.Second); got != time.Second {
		t.Errorf("after %v", got)
	}
}

// In each stretch of time there are at most five writes more than intervals, however often somebody wishes to write.
func TestPaceLimitsWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pace
		now := time.Unix(1000, 0)
		var writes []time.Time
		for range rapid.IntRange(1, 60).Draw(t, "writes") {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "pause")) * time.Second)
			now = now.Add(p.Take(now, 10*time.Second))
			writes = append(writes, now)
		}
		for i := range writes {
			for j := i; j < len(writes); j++ {
				if n, most := j-i+1, 5+int(writes[j].Sub(writes[i])/(10*time.Second)); n > most {
					t.Fatalf("%d writes in %v", n, writes[j].Sub(writes[i]))
				}
			}
		}
	})
}

func TestBackOff(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	down := errors.New("connection refused")
	for _, c := range []struct {
		failures int
		err      error
		random   float64
		want     time.Duration
	}{
		{1, down, 0, time.Second},
		{1, down, 1, 800 * time.Millisecond},
		{2, down, 0, 2 * time.Second},
		{9, down, 0, 256 * time.Second},
		{10, down, 0, 5 * time.Minute},
		{1 << 30, down, 0, 5 * time.Minute},
		{1, apierrors.NewTooManyRequests("", 20), 0, 20 * time.Second},
		{1, apierrors.NewTooManyRequests("", 1000), 0, 5 * time.Minute},
		{1, fmt.Errorf("write: %w", apierrors.NewServerTimeout(nodes, "patch", 7)), 0, 7 * time.Second},
		{1, apierrors.NewForbidden(nodes, "n", down), 0, 5 * time.Minute},
		{1, apierrors.NewConflict(nodes, "n", down), 0, time.Second},
		{1, apierrors.NewNotFound(nodes, "n"), 0, time.Second},
		{1, apierrors.NewUnauthorized(""), 0, time.Second},
		{1, apierrors.NewInternalError(down), 0, time.Second},
	} {
		if got := BackOff(c.failures, c.err, c.random); got != c.want {
			t.Errorf("%d failures, %v: %v, want %v", c.failures, c.err, got, c.want)
		}
	}
}

func TestRejected(t *testing.T) {
	nodes := schema.GroupResource{Resource: "nodes"}
	for err, want := range map[error]bool{
		errors.New("unknown"): false, apierrors.NewTimeoutError("", 1): false,
		apierrors.NewInternalError(errors.New("")): false,
		apierrors.NewConflict(nodes, "n", nil):     true, apierrors.NewForbidden(nodes, "n", nil): true,
	} {
		if Rejected(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}
