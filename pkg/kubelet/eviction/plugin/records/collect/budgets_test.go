package collect

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// allowed returns how many disruptions the budgets of pods allow, -1 for no budget, in the order of the pods.
func (r *rig) allowed(ctx context.Context, pods ...*v1.Pod) (allowed []int32) {
	of := r.Records(ctx, pods)
	for _, pod := range pods {
		n := int32(-1)
		if b := of[pod.UID].Budget; b != nil {
			n = b.DisruptionsAllowed
		}
		allowed = append(allowed, n)
	}
	return allowed
}

func (r *rig) expect(t *testing.T, pod *v1.Pod, allowed int32, requests int) {
	t.Helper()
	got := r.allowed(t.Context(), pod)[0]
	if asked := r.server.asked(); got != allowed || len(asked) != requests {
		t.Errorf("at %v: %d disruptions with the requests %v, want %d with %d requests",
			r.clock.Now().Sub(start), got, asked, allowed, requests)
	}
}

// The budgets of a namespace are read with one request, from the cache of the API server, and count for 30 seconds.
func TestBudgetsAreCached(t *testing.T) {
	r := newRig(t)
	r.server.allow("shop", 1)
	a, b, other := podIn("shop", "a", ""), podIn("shop", "b", ""), podIn("bank", "c", "")
	if got := r.allowed(t.Context(), other, a, b); !slices.Equal(got, []int32{-1, 1, 1}) {
		t.Errorf("got %v", got)
	}
	asked := r.server.asked()
	slices.Sort(asked)
	want := []string{
		"GET /apis/policy/v1/namespaces/bank/poddisruptionbudgets?resourceVersion=0",
		"GET /apis/policy/v1/namespaces/shop/poddisruptionbudgets?resourceVersion=0",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("got the requests %q, want %q", asked, want)
	}
	r.server.allow("shop", 0)
	r.pass(budgetsKept - 1)
	r.expect(t, a, 1, 0)
	r.expect(t, other, -1, 0)
	r.pass(1)
	r.expect(t, a, 0, 1)
}

// Budgets that cannot be read are unknown, and are not read again for 30 seconds. There is one request, without retry.
func TestBudgetsThatCannotBeRead(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"too many requests": failing(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests),
		"internal error":    failing(http.StatusInternalServerError, metav1.StatusReasonInternalError),
		"not found":         failing(http.StatusNotFound, metav1.StatusReasonNotFound),
		"no JSON":           func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "text") },
		"other kind":        func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, v1.Pod{}) },
		"empty":             func(http.ResponseWriter, *http.Request) {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.server.allow("shop", 1)
			pod := podIn("shop", "a", "")
			r.expect(t, pod, 1, 1)
			r.server.set(answer)
			r.pass(budgetsKept)
			r.expect(t, pod, -1, 1)
			r.server.set(nil)
			r.pass(budgetsKept - 1)
			r.expect(t, pod, -1, 0)
			r.pass(1)
			r.expect(t, pod, 1, 1)
		})
	}
}

// Records wait for an API server that does not answer for the time-out only, once in 30 seconds.
func TestSilentAPIServer(t *testing.T) {
	r := newRig(t)
	if r.budgets.timeout = silent; newBudgets(nil, r.clock).timeout != time.Second {
		t.Error("records wait for more than a second")
	}
	r.server.set(hanging)
	pod := podIn("shop", "a", "web")
	if got := r.allowed(t.Context(), pod); got[0] != -1 {
		t.Errorf("got %v", got)
	}
	r.server.asked()
	r.server.set(nil)
	r.server.allow("shop", 1)
	r.budgets.timeout = 5 * time.Minute
	r.expect(t, pod, -1, 0)
	r.pass(budgetsKept)
	r.expect(t, pod, 1, 1)
}

// Without the right to list budgets there is one request in ten minutes, whatever the namespace.
func TestBudgetsThatMustNotBeRead(t *testing.T) {
	r := newRig(t)
	for _, namespace := range []string{"bank", "shop"} {
		r.server.allow(namespace, 1)
	}
	r.server.set(failing(http.StatusForbidden, metav1.StatusReasonForbidden))
	pod := podIn("shop", "a", "")
	r.expect(t, pod, -1, 1)
	for range 19 {
		r.pass(budgetsKept)
		r.expect(t, pod, -1, 0)
		r.expect(t, podIn("bank", "b", ""), -1, 0)
	}
	r.pass(budgetsKept)
	r.expect(t, pod, -1, 1)
	r.server.set(nil)
	r.pass(forbiddenPause)
	r.expect(t, pod, 1, 1)
	r.expect(t, podIn("bank", "b", ""), 1, 1)
}

// After a refusal the other namespaces of the question are not asked for.
func TestRefusalEndsAQuestion(t *testing.T) {
	r := newRig(t)
	r.server.set(failing(http.StatusForbidden, metav1.StatusReasonForbidden))
	var pods []*v1.Pod
	for i := range 50 {
		pods = append(pods, podIn(fmt.Sprintf("ns%02d", i), "a", ""))
	}
	r.allowed(t.Context(), pods...)
	if asked := r.server.asked(); len(asked) > maxReads {
		t.Errorf("%d requests after a refusal", len(asked))
	}
}

// At most 64 namespaces are cached, and so read in 30 seconds, four at a time. The budgets of others are unknown.
func TestManyNamespaces(t *testing.T) {
	r := newRig(t)
	var pods []*v1.Pod
	for i := range maxNamespaces + 10 {
		namespace := fmt.Sprintf("ns%03d", i)
		r.server.allow(namespace, int32(i))
		pods = append(pods, podIn(namespace, "a", ""))
	}
	for range 2 {
		for i, got := range r.allowed(t.Context(), pods...) {
			if (i < maxNamespaces && got != int32(i)) || (i >= maxNamespaces && got != -1) {
				t.Errorf("namespace %d: %d disruptions", i, got)
			}
		}
	}
	if asked := r.server.asked(); len(asked) != maxNamespaces || r.server.most > maxReads {
		t.Errorf("%d requests, %d at a time", len(asked), r.server.most)
	}
	r.pass(budgetsKept)
	last := pods[len(pods)-1]
	r.expect(t, last, maxNamespaces+9, 1)
	if n := len(r.budgets.namespaces); n != 1 {
		t.Errorf("%d namespaces are kept", n)
	}
}

// While the budgets of a namespace are being read, other questions wait for that read.
func TestOneReadOfANamespaceAtATime(t *testing.T) {
	r := newRig(t)
	r.server.allow("shop", 1)
	release := make(chan struct{})
	r.server.set(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		reply(w, http.StatusOK, metav1.Status{})
	})
	pod := podIn("shop", "a", "")
	var questions sync.WaitGroup
	for range 8 {
		questions.Go(func() { r.allowed(t.Context(), pod) })
	}
	await.True(t, "the namespace is read", func() bool {
		r.server.mu.Lock()
		defer r.server.mu.Unlock()
		return r.server.under == 1
	})
	close(release)
	questions.Wait()
	if asked := r.server.asked(); len(asked) != 1 {
		t.Errorf("got the requests %v", asked)
	}
}

// A question that is cancelled returns, and the next one reads the budgets.
func TestCancelledQuestion(t *testing.T) {
	r := newRig(t)
	r.server.allow("shop", 1)
	ctx, cancel := context.WithCancel(t.Context())
	r.server.set(func(w http.ResponseWriter, request *http.Request) {
		cancel()
		hanging(w, request)
	})
	pod := podIn("shop", "a", "")
	if got := r.allowed(ctx, pod); got[0] != -1 {
		t.Errorf("got %v", got)
	}
	r.allowed(ctx, pod)
	if asked := r.server.asked(); len(asked) != 1 {
		t.Errorf("got the requests %v", asked)
	}
	r.server.set(nil)
	r.expect(t, pod, 1, 1)
}

// An API server that is not there delays nothing.
func TestNoConnection(t *testing.T) {
	r := newRig(t)
	r.server.Close()
	r.expect(t, podIn("shop", "a", ""), -1, 0)
}

// The reads of a question share one time-out. What was not tried is tried by the next question.
func TestReadsShareTheirTime(t *testing.T) {
	r := newRig(t)
	var pods []*v1.Pod
	for i := range 3 * maxReads {
		pods = append(pods, podIn(fmt.Sprintf("ns%02d", i), "a", ""))
	}
	r.server.set(hanging)
	r.budgets.timeout = silent
	r.allowed(t.Context(), pods...)
	tried := r.server.asked()
	if len(tried) > maxReads {
		t.Errorf("got the requests %v", tried)
	}
	r.server.set(nil)
	r.budgets.timeout = 5 * time.Minute
	r.allowed(t.Context(), pods...)
	again := r.server.asked()
	for _, request := range tried {
		if slices.Contains(again, request) {
			t.Errorf("%s is read twice", request)
		}
	}
	if len(again) < len(pods)-maxReads || len(r.budgets.namespaces) != len(pods) {
		t.Errorf("%d namespaces were read, %d are cached, of %d", len(again), len(r.budgets.namespaces), len(pods))
	}
}
