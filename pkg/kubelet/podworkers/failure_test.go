package podworkers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podsync"
)

// hookOutput is an error with the output of a hook. It notes whether it is read while the workers are locked.
type hookOutput struct {
	text         string
	workers      *Workers
	read, locked *atomic.Bool
}

func (e hookOutput) Error() string {
	e.read.Store(true)
	if !e.workers.mu.TryLock() {
		e.locked.Store(true)
		return e.text
	}
	e.workers.mu.Unlock()
	return e.text
}

// What a pod writes decides how long an error is. No other pod waits while it is read.
func TestErrorTextIsBuiltWithoutTheLock(t *testing.T) {
	var read, locked atomic.Bool
	bubble(t, func(n *node) {
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			text := "hook: " + strings.Repeat("noise ", 2*maxMessageBytes)
			return podsync.SyncResult{}, hookOutput{text: text, workers: n.Workers, read: &read, locked: &locked}
		}
		pod := newPod("a")
		n.start(pod)
		if got := n.view(pod).LastError.Message; len(got) > maxMessageBytes || !strings.HasPrefix(got, "hook: noise noise") {
			t.Errorf("%d bytes are shown: %.80q", len(got), got)
		}
	})
	if !read.Load() || locked.Load() {
		t.Errorf("the error was read: %t; under the lock: %t", read.Load(), locked.Load())
	}
}

func TestErrorMessage(t *testing.T) {
	for text, want := range map[string]string{
		`Exec lifecycle hook ([sh -c drain all]) failed`: `Exec lifecycle hook ([sh -c drain all]) failed`,
		"two\nlines, a\ttab and \x1b[31m":                "two lines, a tab and  [31m",
		"":                                               "an error without text",
		"\n":                                             "an error without text",
	} {
		if got := errorMessage(errors.New(text)); got != want {
			t.Errorf("%q is kept as %q, want %q", text, got, want)
		}
	}
}

// Whatever an error contains, what is kept of it is short, printable, and its beginning.
func TestErrorMessageProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anyBytes := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
		text := rapid.OneOf(rapid.String(), anyBytes).Draw(t, "text")
		text = strings.Repeat(text, rapid.IntRange(1, 2*maxMessageBytes/max(len(text), 1)+1).Draw(t, "times"))
		got := errorMessage(errors.New(text))
		printable := utf8.ValidString(got) && !strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) })
		if len(got) == 0 || len(got) > maxMessageBytes || !printable {
			t.Fatalf("%d bytes: %q", len(got), got)
		}
		clean := oneLine(text)
		fits := max(len(text), len(clean)) <= maxMessageBytes
		if fits && strings.TrimSpace(clean) != "" && got != clean {
			t.Fatalf("%q is kept as %q", clean, got)
		}
	})
}

func TestDelay(t *testing.T) {
	now := time.Unix(1000, 0)
	until := func(d time.Duration) error {
		return kubecontainer.NewBackoffError(errors.New("backing off"), now.Add(d))
	}
	for _, test := range []struct {
		name  string
		after podlifecycle.Delay
		err   error
		want  time.Duration
	}{
		{"phase change", podlifecycle.DelayNone, nil, 0},
		{"well", podlifecycle.DelayResync, nil, resync},
		{"waiting for a name", podlifecycle.DelayBackoff, nil, backoff},
		{"failed", podlifecycle.DelayBackoff, errors.New("no"), backoff},
		{"network", podlifecycle.DelayBackoff, errors.New("network is not ready: cni config uninitialized"), time.Second},
		{"back-off", podlifecycle.DelayBackoff, fmt.Errorf("sync: %w", until(20*time.Second)), 20 * time.Second},
		{"earliest of several", podlifecycle.DelayBackoff,
			utilerrors.NewAggregate([]error{until(30 * time.Second), until(3 * time.Second)}), 3 * time.Second},
		{"back-off is over", podlifecycle.DelayBackoff, until(-time.Minute), 0},
		{"back-off beyond the resync", podlifecycle.DelayBackoff, until(time.Hour), resync},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := New(Config{ResyncInterval: resync, BackoffPeriod: backoff, Clock: clocktesting.NewFakeClock(now)})
			for range 50 {
				if got := w.delay(test.after, w.backoff(test.err)); got < test.want || got > test.want+test.want/2 {
					t.Fatalf("%v, want %v and at most half more", got, test.want)
				}
			}
		})
	}
}
