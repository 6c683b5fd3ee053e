package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	oteltrace "go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/podworkers"
)

// oneStuckPod are views of a pod that does not end and one that is well.
type oneStuckPod struct{ shown int }

var viewTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (o *oneStuckPod) Views() podworkers.Listing {
	o.shown++
	ago := func(d time.Duration) time.Time { return viewTime.Add(-d) }
	return podworkers.Listing{Time: viewTime, Workers: []podworkers.View{
		{
			Namespace: "a", Name: "stuck", UID: "u1", Phase: "Terminating", Operation: "terminate",
			WaitsFor: "containers to stop",
			Since:    podworkers.Since{Seen: ago(time.Hour), Started: ago(time.Hour), Requested: ago(time.Minute)},
			Termination: &podworkers.TerminationView{
				Cause: "eviction", GraceSeconds: 30, Deadline: ago(30 * time.Second), Begun: true, Hastened: true, Waiters: 2,
				Stuck: true,
			},
			LastError: &podworkers.ErrorView{Time: ago(5 * time.Second), Message: "the runtime\tsays no", Failures: 3},
		},
		{
			Namespace: "b", Name: "well", UID: "u2", Static: true, Phase: "Syncing", Operation: "none",
			Since: podworkers.Since{Seen: ago(90 * time.Second)},
		},
	}, Omitted: 7}
}

// debugHandler is the handler of the secure port.
func debugHandler(
	t *testing.T, views WorkerViews, auth stockserver.AuthInterface, config *kubeletconfig.KubeletConfiguration,
) http.Handler {
	t.Helper()
	stock := stockserver.NewServer(t.Context(), newWorld().host(), analyzer{}, nil, flags{}, auth, config)
	stock.InstallTracingFilter(oteltrace.NewTracerProvider())
	return NewServers(Config{Kubelet: config, Auth: auth, Workers: views}).withDebugPods(&stock)
}

// lame is an authorizer that cannot decide, or knows of no attributes.
type lame struct {
	stockserver.AuthInterface
	noAttributes bool
}

func (lame) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", errors.New("no answer")
}

// Whoever asks gets the same answer as on /pods, and the API server is asked the same.
func TestDebugPodsIsGuardedAsPods(t *testing.T) {
	may := map[string]func(authorizer.Attributes) bool{
		"everything":          func(authorizer.Attributes) bool { return true },
		"nothing":             func(authorizer.Attributes) bool { return false },
		"nodes/pods":          func(a authorizer.Attributes) bool { return a.GetSubresource() == "pods" },
		"nodes/proxy":         func(a authorizer.Attributes) bool { return a.GetSubresource() == "proxy" },
		"nodes/metrics alone": func(a authorizer.Attributes) bool { return a.GetSubresource() == "metrics" },
	}
	reached := 0
	for name, allowed := range may {
		for _, token := range []string{"", "broken", "nobody", "reader"} {
			for _, method := range []string{"GET", "POST", "PUT", "DELETE", "HEAD"} {
				auth := newAuth(allowed)
				handler := debugHandler(t, &oneStuckPod{}, auth, debugConfig())
				theirs := request(t, handler, endpoint{method, "/pods"}, token)
				asked := auth.asked
				auth.asked = nil
				ours := request(t, handler, endpoint{method, "/debug/pods"}, token)
				what := fmt.Sprintf("%s as %q who may do %s", method, token, name)
				if ours.Code != theirs.Code {
					t.Errorf("%s: %d, on /pods %d", what, ours.Code, theirs.Code)
				}
				if ours.Code != http.StatusOK && ours.Code != http.StatusMethodNotAllowed &&
					ours.Body.String() != theirs.Body.String() {
					t.Errorf("%s: %q, on /pods %q", what, ours.Body, theirs.Body)
				}
				if !reflect.DeepEqual(essence(auth.asked), essence(asked)) {
					t.Errorf("%s: asks for %v, /pods for %v", what, essence(auth.asked), essence(asked))
				}
				if ours.Code == http.StatusOK {
					reached++
				}
			}
		}
	}
	if reached != 3 {
		t.Errorf("%d of the requests were served; GET by those who may, three, should be", reached)
	}
}

// essence is what is asked of the API server.
func essence(asked []authorizer.Attributes) []string {
	var all []string
	for _, a := range asked {
		all = append(all, strings.Join([]string{
			a.GetUser().GetName(), a.GetVerb(), a.GetAPIVersion(), a.GetResource(), a.GetName(), a.GetSubresource(),
			a.GetNamespace(), fmt.Sprint(a.IsResourceRequest()),
		}, " "))
	}
	return all
}

func (l lame) GetRequestAttributes(ctx context.Context, who user.Info, r *http.Request) []authorizer.Attributes {
	if l.noAttributes {
		return nil
	}
	return l.AuthInterface.GetRequestAttributes(ctx, who, r)
}

func TestDebugPodsWithoutADecision(t *testing.T) {
	for noAttributes, want := range map[bool]int{false: http.StatusInternalServerError, true: http.StatusForbidden} {
		handler := debugHandler(t, &oneStuckPod{}, lame{newAuth(nil), noAttributes}, debugConfig())
		ours := request(t, handler, endpoint{"GET", "/debug/pods"}, "reader")
		theirs := request(t, handler, endpoint{"GET", "/pods"}, "reader")
		if ours.Code != want || theirs.Code != ours.Code || ours.Body.String() != theirs.Body.String() {
			t.Errorf("%d %q, on /pods %d %q", ours.Code, ours.Body, theirs.Code, theirs.Body)
		}
	}
}

// With the debugging handlers off nobody sees anything, and only those who may are told why.
func TestDebugPodsOff(t *testing.T) {
	views := &oneStuckPod{}
	handler := debugHandler(t, views, newAuth(func(authorizer.Attributes) bool { return true }),
		&kubeletconfig.KubeletConfiguration{})
	for token, want := range map[string]int{"": 401, "nobody": 403, "reader": 405} {
		theirs := request(t, handler, endpoint{"GET", "/runningpods/"}, token).Code
		if got := request(t, handler, endpoint{"GET", "/debug/pods"}, token).Code; got != want || got != theirs {
			t.Errorf("as %q: %d, want %d, as /runningpods/: %d", token, got, want, theirs)
		}
	}
	if views.shown > 0 {
		t.Error("the workers were looked at")
	}
	// Without views the path is as unknown as any other.
	handler = debugHandler(t, nil, newAuth(func(authorizer.Attributes) bool { return true }), debugConfig())
	if got := request(t, handler, endpoint{"GET", "/debug/pods"}, "reader").Code; got != http.StatusNotFound {
		t.Errorf("without views: %d", got)
	}
}

func TestDebugPodsIsNotOnTheReadOnlyPort(t *testing.T) {
	cfg := testServers(t)
	cfg.Workers = &oneStuckPod{}
	cfg.Kubelet.EnableServer, cfg.Kubelet.HealthzPort = false, 0
	stop := run(t, NewServers(cfg))
	awaitStatus(t, http.DefaultClient, "http://"+at(cfg.Kubelet.ReadOnlyPort, "/debug/pods"), "", 404)
	http.DefaultClient.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestDebugPodsFormats(t *testing.T) {
	handler := debugHandler(t, &oneStuckPod{}, newAuth(func(authorizer.Attributes) bool { return true }), debugConfig())
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
	var listing podworkers.Listing
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
