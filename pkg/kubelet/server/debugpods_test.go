package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
)

// oneStuckPod are views of a pod that does not end and one that is well.
type oneStuckPod struct{ shown int }

var viewTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (o *oneStuckPod) Views() debugv1alpha1.PodWorkerList {
	o.shown++
	ago := func(d time.Duration) time.Time { return viewTime.Add(-d) }
	return debugv1alpha1.PodWorkerList{Time: viewTime, Workers: []debugv1alpha1.PodWorker{
		{
			Namespace: "a", Name: "stuck", UID: "u1", Phase: "Terminating", Operation: "terminate",
			WaitsFor: "containers to stop",
			Since:    debugv1alpha1.PodWorkerTimes{Seen: ago(time.Hour), Started: ago(time.Hour), Requested: ago(time.Minute)},
			Termination: &debugv1alpha1.Termination{
				Cause: "eviction", GraceSeconds: 30, Deadline: ago(30 * time.Second), Begun: true, Hastened: true, Waiters: 2,
				Stuck: true,
			},
			LastError: &debugv1alpha1.OperationError{Time: ago(5 * time.Second), Message: "the runtime\tsays no", Failures: 3},
		},
		{
			Namespace: "b", Name: "well", UID: "u2", Static: true, Phase: "Syncing", Operation: "none",
			Since: debugv1alpha1.PodWorkerTimes{Seen: ago(90 * time.Second)},
		},
	}, Omitted: 7}
}

func TestDebugPagesAreNotOnTheReadOnlyPort(t *testing.T) {
	cfg := testServers(t)
	cfg.Debug.PodWorkers = (&oneStuckPod{}).Views
	cfg.Kubelet.EnableServer, cfg.Kubelet.HealthzPort = false, 0
	stop := run(t, NewServers(cfg))
	for _, page := range DebugPages(cfg.Debug) {
		awaitStatus(t, http.DefaultClient, "http://"+at(cfg.Kubelet.ReadOnlyPort, page.Path), "", 404)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// everyField are views in which each field is set, and one in which none is.
type everyField struct{}

func (everyField) Views() debugv1alpha1.PodWorkerList {
	at := func(d time.Duration) time.Time { return viewTime.Add(d) }
	return debugv1alpha1.PodWorkerList{Time: viewTime, Omitted: 7, Workers: []debugv1alpha1.PodWorker{
		{
			Namespace: "a", Name: "stuck", UID: "u1", Static: true, Phase: "Terminating", Operation: "terminate",
			WaitsFor: "containers to stop",
			Since: debugv1alpha1.PodWorkerTimes{
				Seen: at(1), Started: at(time.Microsecond), Requested: at(time.Millisecond), Terminated: at(time.Second),
				Finished: at(time.Minute), Operation: at(time.Hour),
			},
			Termination: &debugv1alpha1.Termination{
				Cause: "eviction", GraceSeconds: 30, Deadline: at(30 * time.Second), Begun: true, Hastened: true, Waiters: 2,
				Stuck: true,
				Overdue: &debugv1alpha1.Overdue{
					Since: at(31 * time.Second), Tried: "KillCgroup", Left: "running: main", Seen: at(32 * time.Second),
				},
			},
			LastError: &debugv1alpha1.OperationError{
				Time: at(5 * time.Second), Message: "<the runtime>\tsays \"no\" & ends", Failures: 3,
			},
		},
		{},
	}}
}

// The bytes are those of the version in which the types of the page were part of package podworkers.
func TestDebugPodsJSON(t *testing.T) {
	handler := debugHandler(t, everyField{}.Views, newAuth(everything), debugConfig())
	answer := request(t, handler, endpoint{"GET", "/debug/pods"}, "reader")
	want, err := os.ReadFile("testdata/debugpods.json")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Code != http.StatusOK || answer.Body.String() != string(want) {
		t.Errorf("%d\n%s\nwant\n%s", answer.Code, answer.Body, want)
	}
}

func TestDebugPodsFormats(t *testing.T) {
	handler := debugHandler(t, (&oneStuckPod{}).Views, newAuth(everything), debugConfig())
	get := func(query, accept string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/debug/pods"+query, nil)
		r.Header.Set("Authorization", "Bearer reader")
		if accept != "" {
			r.Header.Set("Accept", accept)
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, r)
		return recorder
	}
	for _, tc := range []struct{ query, accept, want string }{
		{"", "", "application/json"}, {"", "*/*", "application/json"},
		{"", "application/json, text/plain", "application/json"},
		{"?format=json", "text/plain", "application/json"}, {"?format=text", "", "text/plain; charset=utf-8"},
		{"", "text/plain;q=1", "text/plain; charset=utf-8"},
	} {
		answer := get(tc.query, tc.accept)
		if got := answer.Header().Get("Content-Type"); got != tc.want || answer.Code != 200 {
			t.Errorf("%q, Accept %q: %d %s, want %s", tc.query, tc.accept, answer.Code, got, tc.want)
		}
	}
	if answer := get("?format=yaml", ""); answer.Code != 400 ||
		!strings.Contains(answer.Body.String(), `format: "yaml": allowed are json and text`) {
		t.Errorf("unknown format: %d %s", answer.Code, answer.Body)
	}
	var listing debugv1alpha1.PodWorkerList
	if err := json.Unmarshal(get("", "").Body.Bytes(), &listing); err != nil ||
		!reflect.DeepEqual(listing, (&oneStuckPod{}).Views()) {
		t.Errorf("decoded %+v: %v", listing, err)
	}
	want := strings.Join([]string{
		"NAMESPACE  NAME   UID  STATIC  PHASE        FOR    DOING      WAITS FOR           " +
			"CAUSE     GRACE  DEADLINE IN  HASTENED  WAITERS  STUCK  LAST ERROR",
		"a          stuck  u1   false   Terminating  1m0s   terminate  containers to stop  " +
			`eviction  30s    -30s         true      2        true   5s ago, 3 in a row: "the runtime\tsays no"`,
		"b          well   u2   true    Syncing      1m30s  none       -                   " +
			"-         -      -            -         -        -      -",
		"and 7 more", "",
	}, "\n")
	if got := get("?format=text", "").Body.String(); got != want {
		t.Errorf("the table is\n%s\nwant\n%s", got, want)
	}
}
