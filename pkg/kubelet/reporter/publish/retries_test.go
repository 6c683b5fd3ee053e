package publish

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// R13: errors are followed by a back-off, with jitter, up to five minutes. After it the newest is written once.
func TestR13BackOff(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`)
		a.after(time.Minute)
		a.api.sent()
		var attempts []time.Duration
		begin := time.Now()
		a.api.setFault(func(r *request) *http.Response {
			if r.method == http.MethodPatch {
				attempts = append(attempts, time.Since(begin))
			}
			return unreachable(r)
		})
		a.api.endWatches()
		for i := range 3600 {
			a.give(policy, fmt.Sprintf(`"%d"`, i))
			a.after(time.Second)
		}
		if n := len(attempts); n < 17 || n > 24 {
			t.Errorf("%d attempts in an hour: %v", n, attempts)
		}
		for i := range len(attempts) - 1 {
			wait, full := attempts[i+1]-attempts[i], min(time.Second<<min(i, 20), 5*time.Minute)
			if wait < full*4/5 || wait > full+time.Millisecond {
				t.Errorf("attempt %d came %v after the one before, want %v or up to a fifth less", i+2, wait, full)
			}
		}
		a.expectEvents("not published completely")
		if s := a.State(); s.LastError == "" || s.Failures != len(attempts) || s.NextAttempt.IsZero() || !s.Pending {
			t.Errorf("state %+v", s)
		}
		a.api.setFault(nil)
		a.api.sent()
		a.after(5 * time.Minute)
		a.expectSent(applyStatus)
		a.expect(policy, `"3599"`)
	})
}

// R13: no sooner than the API server asks for, and each request once.
func TestR13RetryAfter(t *testing.T) {
	for name, response := range map[string]func() *http.Response{
		"status": func() *http.Response {
			return status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many", 40)
		},
		"text": func() *http.Response { return text(http.StatusTooManyRequests, "Too many requests", 40) },
		"unavailable": func() *http.Response {
			return status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no", 40)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(a *agent) {
				a.give(policy, `"0"`)
				a.after(time.Minute)
				a.api.sent()
				a.api.setFault(func(r *request) *http.Response {
					if r.method == http.MethodPatch {
						return response()
					}
					return nil
				})
				a.give(policy, `"1"`)
				a.after(40 * time.Second)
				a.expectSent(applyStatus)
				a.after(10 * time.Second)
				a.expectSent(applyStatus)
				a.api.setFault(nil)
				a.after(50 * time.Second)
				a.expectSent(applyStatus)
				a.expect(policy, `"1"`)
			})
		})
	}
}

// Without the kind, or the right, there is one event, and at last one attempt each five minutes. The first attempts
// follow soon: an API server that has just started answers like that.
func TestNoKindAndNoRight(t *testing.T) {
	for name, tc := range map[string]struct {
		response func() *http.Response
		state    func(s State) bool
	}{
		"no kind": {
			func() *http.Response { return text(http.StatusNotFound, "404 page not found\n", 0) },
			func(s State) bool { return s.NoKind && !s.Forbidden },
		},
		"no right": {
			func() *http.Response { return status(http.StatusForbidden, metav1.StatusReasonForbidden, "no", 0) },
			func(s State) bool { return s.Forbidden && !s.NoKind },
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(a *agent) {
				requests := 0
				a.api.setFault(func(*request) *http.Response {
					requests++
					return tc.response()
				})
				for second := range 4200 {
					a.give(policy, fmt.Sprintf(`"%v"`, time.Now()))
					a.after(time.Second)
					switch {
					case second == 20 && requests < 4:
						t.Errorf("%d requests in the first 20 s", requests)
					case second == 8:
						a.expectEvents() // an API server that has just started answers like that
					case second == 600:
						requests = 0
					}
				}
				if requests < 11 || requests > 13 {
					t.Errorf("%d requests in an hour, after the first ten minutes", requests)
				}
				if !tc.state(a.State()) {
					t.Errorf("state %+v", a.State())
				}
				a.expectEvents("CustomNodeResourceNotPublished")
				a.api.setFault(nil)
				a.after(6 * time.Minute)
				if a.api.get() == nil || a.State().LastError != "" || tc.state(a.State()) {
					t.Errorf("object %v, state %+v", a.api.get(), a.State())
				}
				a.expectEvents()
				// The same error after a success is reported again.
				a.api.setFault(func(*request) *http.Response { return tc.response() })
				a.give(policy, `"x"`)
				a.after(time.Hour)
				a.expectEvents("CustomNodeResourceNotPublished")
			})
		})
	}
}

// What the API server refuses does not keep the rest from being written, nor what is reported afterwards.
func TestRefusedPart(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`, properties, `[0]`)
		a.after(time.Minute)
		a.api.sent()
		a.api.setFault(func(r *request) *http.Response {
			if r.String() == applyMain {
				return status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "bad property", 0)
			}
			return nil
		})
		a.give(policy, `"1"`, properties, `["bad"]`)
		a.after(2 * time.Second)
		a.expect(policy, `"1"`)
		a.expect(properties, `[0]`)
		a.expectEvents("bad property")
		a.after(time.Hour)
		a.expectEvents()
		a.api.setFault(nil)
		a.api.sent()
		a.give(policy, `"1"`, properties, `[2]`)
		a.after(12 * time.Second)
		a.expect(properties, `[2]`)
	})
}

// An API server that says each time that the object is gone is not asked without a pause.
func TestAlwaysGone(t *testing.T) {
	bubble(t, func(a *agent) {
		a.api.setFault(func(r *request) *http.Response {
			if r.method == http.MethodPatch {
				return status(http.StatusNotFound, metav1.StatusReasonNotFound, "gone", 0)
			}
			return nil
		})
		a.give(policy, `"0"`)
		a.after(time.Minute)
		if n := len(a.api.sent()); n > 8 {
			t.Errorf("%d requests in a minute", n)
		}
		a.api.setFault(nil)
		a.after(2 * time.Minute)
		a.expect(policy, `"0"`)
	})
}

// The API server may be older than what was seen of it: it was restored from a backup.
func TestAPIServerGoesBack(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`)
		a.after(time.Minute)
		backup := a.api.get()
		version := a.api.version
		a.give(policy, `"1"`)
		a.after(time.Minute)
		a.api.mu.Lock()
		a.api.object, a.api.version = backup, version
		a.api.mu.Unlock()
		a.api.endWatches()
		a.after(time.Minute)
		a.expect(policy, `"1"`)
	})
}
