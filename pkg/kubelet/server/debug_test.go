package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	oteltrace "go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/component-base/metrics/testutil"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
	servermetrics "k8s.io/kubernetes/pkg/kubelet/server/metrics"
	"k8s.io/utils/clock"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/decisionlog"
)

// stockHandler is stock's handler of the secure port.
func stockHandler(
	t *testing.T, auth stockserver.AuthInterface, config *kubeletconfig.KubeletConfiguration,
) *stockserver.Server {
	t.Helper()
	stock := stockserver.NewServer(t.Context(), newWorld().host(), analyzer{}, nil, flags{}, auth, config)
	stock.InstallTracingFilter(oteltrace.NewTracerProvider())
	return &stock
}

// debugHandler is our handler of the secure port.
func debugHandler(
	t *testing.T, workers func() debugv1alpha1.PodWorkerList, auth stockserver.AuthInterface,
	config *kubeletconfig.KubeletConfiguration,
) http.Handler {
	t.Helper()
	return debugHandlerOf(t, DebugSources{PodWorkers: workers}, auth, config)
}

func debugHandlerOf(
	t *testing.T, from DebugSources, auth stockserver.AuthInterface, config *kubeletconfig.KubeletConfiguration,
) http.Handler {
	t.Helper()
	servers := NewServers(Config{Kubelet: config, Auth: auth, Debug: from})
	return servers.withDebugPages(stockHandler(t, auth, config))
}

// pagesOfTests are the pages of the table, and one that differs from them in each column.
func pagesOfTests() []DebugPage {
	other := DebugPage{
		Path: "/debug/other", AuthorizeAs: "/stats/summary", Metric: "other",
		Handler: show(func() string { return "value" }, func(w io.Writer, text string) error {
			_, err := io.WriteString(w, text)
			return err
		}),
	}
	pages := DebugPages(DebugSources{PodWorkers: (&oneStuckPod{}).Views, Pressure: endingLog{pressureOfTests()}})
	return append(pages, other)
}

// pressureOfTests is one log for all tests, since they make tables often.
var pressureOfTests = sync.OnceValue(func() *decisionlog.Log {
	return decisionlog.New(decisionlog.Config{Node: "n1", Clock: clock.RealClock{}, LimitBytes: 1 << 20})
})

// hasText reports whether a page has a text for people as well.
func hasText(page DebugPage) bool { return !strings.HasPrefix(page.Path, "/debug/pressure/") }

// pathOf returns a path of the page.
func pathOf(page DebugPage) string { return strings.ReplaceAll(page.Path, anySegment, "/1") }

func everything(authorizer.Attributes) bool { return true }

// Each page has a path of its own that stock does not serve, the rights of a path that stock serves, and a label.
func TestTableOfDebugPages(t *testing.T) {
	config, auth := debugConfig(), newAuth(everything)
	stock := stockHandler(t, auth, config)
	var paths []string
	for _, page := range pagesOfTests() {
		if !strings.HasPrefix(page.Path, "/debug/") || slices.Contains(paths, page.Path) {
			t.Errorf("%s is not below /debug or listed twice", page.Path)
		}
		paths = append(paths, page.Path)
		if got := request(t, stock, endpoint{"GET", pathOf(page)}, "reader").Code; got != http.StatusNotFound {
			t.Errorf("stock serves %s: %d", page.Path, got)
		}
		if got := request(t, stock, endpoint{"GET", page.AuthorizeAs}, "reader").Code; got != http.StatusOK {
			t.Errorf("%s is authorized as %s, which stock does not serve: %d", page.Path, page.AuthorizeAs, got)
		}
		if page.Metric == "" {
			t.Errorf("%s has no label", page.Path)
		}
	}
}

func TestDebugPagesAreServed(t *testing.T) {
	config, auth := debugConfig(), newAuth(everything)
	handler := newDebugPages(pagesOfTests(), auth, true, stockHandler(t, auth, config))
	for _, page := range slices.DeleteFunc(pagesOfTests(), func(p DebugPage) bool { return !hasText(p) }) {
		for query, contentType := range map[string]string{
			"": "application/json", "?format=text": "text/plain; charset=utf-8",
		} {
			answer := request(t, handler, endpoint{"GET", page.Path + query}, "reader")
			if got := answer.Header().Get("Content-Type"); answer.Code != http.StatusOK || got != contentType ||
				answer.Body.Len() == 0 {
				t.Errorf("%s%s: %d, %s, %q", page.Path, query, answer.Code, got, answer.Body)
			}
		}
	}
}

// Requests are counted with the label of the page, whatever the response is, and with no method that a client made up.
func TestDebugPagesAreCounted(t *testing.T) {
	servermetrics.Register()
	config, auth := debugConfig(), newAuth(everything)
	handler := newDebugPages(pagesOfTests(), auth, true, stockHandler(t, auth, config))
	requests := func(method, path string) float64 {
		value, err := testutil.GetCounterMetricValue(
			servermetrics.HTTPRequests.WithLabelValues(method, path, "readwrite", "false"))
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	for _, page := range pagesOfTests() {
		for method, label := range map[string]string{"GET": "GET", "POST": "POST", "INVENTED": "other"} {
			for _, token := range []string{"reader", "nobody"} {
				before := requests(label, page.Metric)
				request(t, handler, endpoint{method, pathOf(page)}, token)
				if got := requests(label, page.Metric) - before; got != 1 {
					t.Errorf("%s %s as %q was counted %v times", method, page.Path, token, got)
				}
			}
		}
	}
}

// Each page has the status code, the text and the authorization requests of the path that it is authorized as. It
// answers GET only.
func TestDebugPagesAreGuarded(t *testing.T) {
	allowed := func(subresource string) func(authorizer.Attributes) bool {
		return func(a authorizer.Attributes) bool { return a.GetSubresource() == subresource }
	}
	may := map[string]func(authorizer.Attributes) bool{
		"everything": everything, "nothing": allowed("nothing"), "nodes/pods": allowed("pods"),
		"nodes/proxy": allowed("proxy"), "nodes/metrics": allowed("metrics"), "nodes/stats": allowed("stats"),
	}
	served := map[string]int{}
	for _, page := range pagesOfTests() {
		for name, allowed := range may {
			for _, token := range []string{"", "broken", "nobody", "reader"} {
				for _, method := range []string{"GET", "POST", "PUT", "DELETE", "HEAD"} {
					auth := newAuth(allowed)
					handler := newDebugPages(pagesOfTests(), auth, true, stockHandler(t, auth, debugConfig()))
					theirs := request(t, handler, endpoint{method, page.AuthorizeAs}, token)
					asked := auth.asked
					auth.asked = nil
					ours := request(t, handler, endpoint{method, pathOf(page)}, token)
					what := fmt.Sprintf("%s %s as %q who may do %s", method, page.Path, token, name)
					want := theirs.Code
					if page.Path == "/debug/pressure/decisions"+anySegment && want == http.StatusOK {
						want = http.StatusNotFound // the log is empty
					}
					if theirs.Code == http.StatusOK && method != http.MethodGet {
						want = http.StatusMethodNotAllowed // some paths of stock answer POST
					}
					if ours.Code != want {
						t.Errorf("%s: %d, on %s %d", what, ours.Code, page.AuthorizeAs, theirs.Code)
					}
					if theirs.Code != http.StatusOK && ours.Code != http.StatusMethodNotAllowed &&
						ours.Body.String() != theirs.Body.String() {
						t.Errorf("%s: %q, on %s %q", what, ours.Body, page.AuthorizeAs, theirs.Body)
					}
					if !reflect.DeepEqual(essence(auth.asked), essence(asked)) {
						t.Errorf("%s: requests %v, %s requests %v", what, essence(auth.asked), page.AuthorizeAs, essence(asked))
					}
					if ours.Code == http.StatusOK {
						served[page.Path]++
					}
				}
			}
		}
	}
	want := map[string]int{
		"/debug/pods": 3, "/debug/plugins": 3, "/debug/other": 2, "/debug/pressure/status": 3,
		"/debug/pressure/decisions": 3, "/debug/pressure/watch": 3,
	}
	if !reflect.DeepEqual(served, want) {
		t.Errorf("requests that were served %v, want %v", served, want)
	}
}

// essence lists the content of authorization requests.
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

// lame is an authorizer that cannot decide, or has no attributes.
type lame struct {
	stockserver.AuthInterface
	noAttributes bool
}

func (lame) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", errors.New("no answer")
}

func (l lame) GetRequestAttributes(ctx context.Context, who user.Info, r *http.Request) []authorizer.Attributes {
	if l.noAttributes {
		return nil
	}
	return l.AuthInterface.GetRequestAttributes(ctx, who, r)
}

func TestDebugPagesWithoutADecision(t *testing.T) {
	for noAttributes, want := range map[bool]int{false: http.StatusInternalServerError, true: http.StatusForbidden} {
		auth := lame{newAuth(nil), noAttributes}
		handler := newDebugPages(pagesOfTests(), auth, true, stockHandler(t, auth, debugConfig()))
		for _, page := range pagesOfTests() {
			ours := request(t, handler, endpoint{"GET", pathOf(page)}, "reader")
			theirs := request(t, handler, endpoint{"GET", page.AuthorizeAs}, "reader")
			if ours.Code != want || theirs.Code != ours.Code || ours.Body.String() != theirs.Body.String() {
				t.Errorf("%s: %d %q, on %s %d %q", page.Path, ours.Code, ours.Body, page.AuthorizeAs, theirs.Code, theirs.Body)
			}
		}
	}
}

// Without the debugging handlers no page is served, and only authorized requests get the reason.
func TestDebugPagesOff(t *testing.T) {
	views := &oneStuckPod{}
	handler := debugHandler(t, views.Views, newAuth(everything), &kubeletconfig.KubeletConfiguration{})
	for _, page := range DebugPages(DebugSources{}) {
		for token, want := range map[string]int{"": 401, "nobody": 403, "reader": 405} {
			theirs := request(t, handler, endpoint{"GET", "/runningpods/"}, token).Code
			if got := request(t, handler, endpoint{"GET", page.Path}, token).Code; got != want || got != theirs {
				t.Errorf("%s as %q: %d, want %d, as /runningpods/: %d", page.Path, token, got, want, theirs)
			}
		}
	}
	if views.shown > 0 {
		t.Error("the pod workers were listed")
	}
}

// All other paths below /debug are answered by stock's handler.
func TestOtherPathsBelowDebugAreStocks(t *testing.T) {
	for name, config := range map[string]*kubeletconfig.KubeletConfiguration{
		"debugging": debugConfig(), "no debugging": {},
	} {
		for _, path := range []string{
			"/debug", "/debug/", "/debug/pods/", "/debug/pods/x", "/debug/podsx", "/debug/Pods", "//debug/pods",
			"/debug/plugins/", "/debug/plugins/x",
			"/debug//pods", "/debug/no-such-page", "/debug/pprof/cmdline", "/debug/flags/v", "/pods",
		} {
			for _, token := range []string{"", "broken", "nobody", "reader"} {
				for _, method := range []string{"GET", "POST", "HEAD"} {
					auth := newAuth(everything)
					theirs := request(t, stockHandler(t, auth, config), endpoint{method, path}, token)
					asked := auth.asked
					auth.asked = nil
					ours := request(t, debugHandler(t, (&oneStuckPod{}).Views, auth, config), endpoint{method, path}, token)
					if ours.Code != theirs.Code || ours.Body.String() != theirs.Body.String() ||
						!reflect.DeepEqual(ours.Header(), theirs.Header()) ||
						!reflect.DeepEqual(essence(auth.asked), essence(asked)) {
						t.Errorf("%s, %s %s as %q: %d %q, stock answers %d %q", name, method, path, token, ours.Code, ours.Body,
							theirs.Code, theirs.Body)
					}
				}
			}
		}
	}
}
