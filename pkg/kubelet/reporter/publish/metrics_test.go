package publish

import (
	"context"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
)

func TestMetrics(t *testing.T) {
	writes := func(object, result string) float64 {
		list, _ := testutil.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer, "plimsoll_reporter_writes_total",
			map[string]string{"object": object}, "result")
		return list[result] // none before the first write
	}
	seconds := func() (count uint64, sum float64) {
		list, _ := testutil.GetHistogramVecFromGatherer(legacyregistry.DefaultGatherer,
			"plimsoll_reporter_answer_to_object_seconds", map[string]string{"object": objectLabel})
		return list.GetAggregatedSampleCount(), list.GetAggregatedSampleSum()
	}
	bubble(t, func(a *agent) {
		before, failed := writes(statusLabel, written), writes(statusLabel, "error")
		count, sum := seconds()
		a.Set(Object{Fields: fieldsOf(policy, `"0"`), Answered: time.Now().Add(-time.Second)})
		a.after(500 * time.Millisecond)
		a.Set(Object{Fields: fieldsOf(policy, `"1"`), Answered: time.Now()})
		a.after(time.Minute)
		if n := writes(statusLabel, written) - before; n != 1 {
			t.Errorf("%v writes", n)
		}
		if c, s := seconds(); c-count != 1 || math.Abs(s-sum-2) > 1e-6 { // that of the older answer
			t.Errorf("%d times, %v s", c-count, s-sum)
		}
		// An answer that is given while a request is under way is not in it.
		count, sum = seconds()
		first := true
		a.api.setFault(func(r *request) *http.Response {
			if r.String() == applyStatus && first {
				first = false
				a.Set(Object{Fields: fieldsOf(policy, `"3"`), Answered: time.Now()})
			}
			return nil
		})
		a.Set(Object{Fields: fieldsOf(policy, `"2"`), Answered: time.Now()})
		a.after(time.Minute)
		a.expect(policy, `"3"`)
		if c, s := seconds(); c-count != 2 || math.Abs(s-sum-2) > 1e-6 {
			t.Errorf("%d times, %v s", c-count, s-sum)
		}
		a.api.setFault(unreachable)
		a.give(policy, `"4"`)
		a.after(1500 * time.Millisecond)
		if n := writes(statusLabel, "error") - failed; n != 1 {
			t.Errorf("%v failed writes", n)
		}
	})
	bubble(t, func(a *agent) {
		before := writes(objectLabel, "forbidden")
		a.api.setFault(func(r *request) *http.Response {
			if r.method == http.MethodPatch {
				return status(http.StatusForbidden, metav1.StatusReasonForbidden, "no", 0)
			}
			return nil
		})
		a.give(policy, `"4"`)
		a.after(1500 * time.Millisecond)
		if n := writes(objectLabel, "forbidden") - before; n != 1 {
			t.Errorf("%v forbidden writes", n)
		}
	})
}

// The client works with real connections: requests, their patches, and watches.
func TestConnections(t *testing.T) {
	api := newAPI(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		response, err := api.RoundTrip(r)
		if err != nil {
			panic(err)
		}
		defer response.Body.Close()
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(response.StatusCode)
		w.(http.Flusher).Flush()
		buffer := make([]byte, 4096)
		for {
			n, err := response.Body.Read(buffer)
			_, _ = w.Write(buffer[:n])
			w.(http.Flusher).Flush()
			if err == io.EOF {
				return
			}
		}
	}))
	defer server.Close()
	client, err := NewClient(&rest.Config{Host: server.URL, Timeout: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, api: api, events: &events{}, config: configForTest(t)}
	a.config.Client, a.config.Recorder = client, a.events
	a.start()
	defer func() { a.stop() }()
	a.give(policy, `"ours"`)
	await := func(what string, condition func() bool) {
		t.Helper()
		if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, time.Minute, true,
			func(context.Context) (bool, error) { return condition(), nil }); err != nil {
			t.Fatalf("%s: %v; state %+v", what, err, a.State())
		}
	}
	hasPolicy := func() bool {
		object := api.get()
		if object == nil {
			return false
		}
		s, _ := object.Object["status"].(map[string]any)
		return s["topologyPolicy"] == "ours"
	}
	await("the object has what is reported", hasPolicy)
	await("a watch is open", func() bool {
		api.mu.Lock()
		defer api.mu.Unlock()
		return len(api.watches) > 0
	})
	api.change(statusPart, "controller", func(o map[string]any) { set(o, "theirs", "status", "topologyPolicy") })
	await("what another writer has changed is back", hasPolicy)
}
