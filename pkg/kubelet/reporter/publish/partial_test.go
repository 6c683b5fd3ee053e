package publish

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A version of the kind without the subresource status answers a write of it as one of an object that does not exist.
// That is a failure like others: with a back-off, in the state and in an event.
func TestKindWithoutStatus(t *testing.T) {
	bubble(t, func(a *agent) {
		a.api.setFault(func(r *request) *http.Response {
			if r.String() == applyStatus {
				return status(http.StatusNotFound, metav1.StatusReasonNotFound, "not found", 0)
			}
			return nil
		})
		a.give(policy, `"0"`, properties, `[0]`)
		a.after(30 * time.Second)
		a.expectEvents("CustomNodeResourceNotPublished")
		a.expect(properties, `[0]`)
		a.after(10 * time.Minute)
		a.api.sent()
		a.after(time.Hour)
		if n := len(a.api.sent()); n > 2*16 {
			t.Errorf("%d requests in an hour", n)
		}
		if a.State().LastError == "" {
			t.Error("the state has no error")
		}
		a.expectEvents()
		a.api.setFault(nil)
		a.after(5 * time.Minute)
		a.expect(policy, `"0"`)
	})
}

// What changes all the time is pending for as long as it was not written, however long it has been changing.
func TestPendingSinceTheLastWrite(t *testing.T) {
	bubble(t, func(a *agent) {
		n := 0
		change := func() { n++; a.give(policy, fmt.Sprintf(`"%d"`, n)) }
		// The content is another one already when the answer to a request arrives.
		a.api.setFault(func(r *request) *http.Response {
			if r.method == http.MethodPatch {
				change()
			}
			return nil
		})
		for range 600 {
			change()
			a.after(time.Second)
			if s := a.State(); s.Pending && time.Since(s.PendingSince) > 15*time.Second {
				t.Fatalf("pending since %v, the last of %d writes was %v ago", time.Since(s.PendingSince), s.Writes,
					time.Since(s.LastWrite))
			}
		}
	})
}

// A full disk costs the record of taints: what else changes is published at its pace, however long the disk is full.
func TestFullDiskDelaysNothingElse(t *testing.T) {
	bubble(t, func(a *agent) {
		if err := os.MkdirAll(a.config.Record+".tmp/x", 0o700); err != nil {
			t.Fatal(err)
		}
		a.give(taintsPath, "["+ourTaint+"]", policy, `"0"`)
		a.after(time.Hour)
		for i := range 10 {
			want := fmt.Sprintf(`"%d"`, i+1)
			a.give(taintsPath, "["+ourTaint+"]", policy, want)
			a.after(12 * time.Second)
			a.expect(policy, want)
		}
		a.expect(taintsPath, ``)
	})
}

// Labels of the configuration that the API server refuses are published as soon as they are corrected.
func TestRefusedLabelsOfTheConfiguration(t *testing.T) {
	bubble(t, func(a *agent) {
		a.api.setFault(func(r *request) *http.Response {
			if r.String() == applyMain && strings.Contains(r.body, "bad") {
				return status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "by a policy", 0)
			}
			return nil
		})
		options := a.config.Options
		options.Labels = map[string]string{"pool": "bad"}
		a.SetOptions(options)
		a.give(policy, `"0"`)
		a.after(time.Hour)
		a.expectEvents("by a policy")
		options.Labels = map[string]string{"pool": "good"}
		a.SetOptions(options)
		a.after(12 * time.Second)
		a.expect("metadata.labels", `{"pool":"good"}`)
	})
}

// An object that is deleted while what the agent has published is removed needs nothing more.
func TestDeletedWhileTurnedOff(t *testing.T) {
	bubble(t, func(a *agent) {
		a.give(policy, `"0"`)
		a.after(time.Minute)
		a.api.setFault(func(r *request) *http.Response {
			if r.method == http.MethodPatch {
				return status(http.StatusNotFound, metav1.StatusReasonNotFound, "gone", 0)
			}
			return nil
		})
		options := a.config.Options
		options.Enabled = false
		a.SetOptions(options)
		a.after(time.Minute)
		if s := a.State(); s.LastError != "" || s.Pending || s.Failures > 0 {
			t.Errorf("state %+v", s)
		}
	})
}
