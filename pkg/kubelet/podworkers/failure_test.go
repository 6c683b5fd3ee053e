package podworkers

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

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
func TestErrorsAreReadWhileTheWorkersAreNotLocked(t *testing.T) {
	var read, locked atomic.Bool
	bubble(t, func(n *node) {
		n.script.onSync = func(context.Context, podsync.SyncRequest) (podsync.SyncResult, error) {
			text := "hook: " + strings.Repeat("noise ", 2*maxMessage)
			return podsync.SyncResult{}, hookOutput{text: text, workers: n.Workers, read: &read, locked: &locked}
		}
		pod := newPod("a")
		n.start(pod)
		if got := n.view(pod).LastError.Message; len(got) > maxMessage || !strings.HasPrefix(got, "hook: noise noise") {
			t.Errorf("%d bytes are shown: %.80q", len(got), got)
		}
	})
	if !read.Load() || locked.Load() {
		t.Errorf("the error was read: %t; under the lock: %t", read.Load(), locked.Load())
	}
}

func TestMessageOf(t *testing.T) {
	for text, want := range map[string]string{
		`Exec lifecycle hook ([sh -c drain all]) failed`: `Exec lifecycle hook ([sh -c drain all]) failed`,
		"two\nlines, a\ttab and \x1b[31m":                "two lines, a tab and  [31m",
		"":                                               "an error without text",
		"\n":                                             "an error without text",
	} {
		if got := messageOf(errors.New(text)); got != want {
			t.Errorf("%q is kept as %q, want %q", text, got, want)
		}
	}
}

// Whatever an error contains, what is kept of it is short, printable, and its beginning.
func TestMessageOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anyBytes := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
		text := rapid.OneOf(rapid.String(), anyBytes).Draw(t, "text")
		text = strings.Repeat(text, rapid.IntRange(1, 2*maxMessage/max(len(text), 1)+1).Draw(t, "times"))
		got := messageOf(errors.New(text))
		printable := utf8.ValidString(got) && !strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) })
		if len(got) == 0 || len(got) > maxMessage || !printable {
			t.Fatalf("%d bytes: %q", len(got), got)
		}
		clean := oneLine(text)
		fits := max(len(text), len(clean)) <= maxMessage
		if fits && strings.TrimSpace(clean) != "" && got != clean {
			t.Fatalf("%q is kept as %q", clean, got)
		}
	})
}
