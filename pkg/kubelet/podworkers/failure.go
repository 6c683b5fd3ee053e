package podworkers

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/wait"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podlifecycle"
)

// maxMessageBytes in bytes bounds what is kept of an error. The error of a hook contains all of its output, which may
// be megabytes.
const maxMessageBytes = 4 << 10

// failure is how an operation failed.
type failure struct {
	at time.Time
	// message is the result of messageOf, empty if no operation has failed.
	message string
	// count is how many operations have failed since the last one that succeeded.
	count int
}

// view shows a failure, nil if there was none.
func (f failure) view() *debugv1alpha1.OperationError {
	if f.message == "" {
		return nil
	}
	return &debugv1alpha1.OperationError{Time: f.at, Message: f.message, Failures: f.count}
}

// errorMessage returns the beginning of an error's text as one printable line of 1 to maxMessage bytes. It puts the
// whole text together, which may be long, so it must not be called under a lock.
func errorMessage(err error) string {
	// Replacing characters that are not printable can make the text longer, hence the second cut.
	text := shorten(oneLine(shorten(err.Error(), maxMessageBytes)), maxMessageBytes)
	if strings.TrimSpace(text) == "" {
		return "an error without text"
	}
	return text
}

// oneLine replaces what does not belong into a line of text.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// shorten cuts a text to at most limit bytes, between characters. The result does not keep the whole text in memory.
func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

// networkNotReady stands in errors of pods that wait for the node's network, which is expected soon.
const networkNotReady = "network is not ready"

// delay returns how long to wait before a pod is looked at again; backoff is the time before a failed operation is
// tried again.
func (w *Workers) delay(after podlifecycle.Delay, backoff time.Duration) time.Duration {
	switch after {
	case podlifecycle.DelayNone:
		return 0
	case podlifecycle.DelayResync:
		backoff = w.cfg.ResyncInterval
	case podlifecycle.DelayBackoff:
	}
	return wait.Jitter(backoff, jitterFactor)
}

// backoff returns the time before an operation is tried again; err is how it failed, nil if it could not begin. An
// error is read whole and may be long, so it must not be passed under a lock.
func (w *Workers) backoff(err error) time.Duration {
	if err != nil && strings.Contains(err.Error(), networkNotReady) {
		return networkRetryPeriod
	}
	backoff := w.cfg.BackoffPeriod
	if until, set := kubecontainer.MinBackoffExpiration(err); set {
		// The error says until when a retry is useless. Waiting longer would add to the back-off.
		backoff = max(until.Sub(w.cfg.Clock.Now()), 0)
	}
	return min(backoff, w.cfg.ResyncInterval)
}
