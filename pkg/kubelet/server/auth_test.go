package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	zpagesfeatures "k8s.io/component-base/zpages/features"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
	serverstats "k8s.io/kubernetes/pkg/kubelet/server/stats"
)

// fakeAuth authenticates the users "reader" and "nobody" by their bearer token; reader may do what allowed contains.
type fakeAuth struct {
	stockserver.AuthInterface
	allowed func(authorizer.Attributes) bool
	asked   []authorizer.Attributes
}

func newAuth(allowed func(authorizer.Attributes) bool) *fakeAuth {
	a := &fakeAuth{allowed: allowed}
	a.AuthInterface = stockserver.NewKubeletAuth(authenticator.RequestFunc(a.authenticate),
		stockserver.NewNodeAuthorizerAttributesGetter("n"),
		authorizer.AuthorizerFunc(a.authorize), dynamiccertificates.NewUnionCAContentProvider())
	return a
}

func (a *fakeAuth) authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	token, given := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token == "broken" {
		return nil, false, fmt.Errorf("token review failed")
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: token}}, given, nil
}

func (a *fakeAuth) authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	a.asked = append(a.asked, attributes)
	if attributes.GetUser().GetName() == "reader" && a.allowed(attributes) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionDeny, "", nil
}

// analyzer sums up an empty node.
type analyzer struct{ serverstats.ResourceAnalyzer }

func (analyzer) Get(context.Context, bool) (*statsapi.Summary, error) {
	return &statsapi.Summary{}, nil
}
func (analyzer) GetCPUAndMemoryStats(context.Context) (*statsapi.Summary, error) {
	return &statsapi.Summary{}, nil
}

func debugConfig() *kubeletconfig.KubeletConfiguration {
	return &kubeletconfig.KubeletConfiguration{
		EnableServer: true, Address: "127.0.0.1",
		EnableDebuggingHandlers: true, EnableSystemLogHandler: true, EnableSystemLogQuery: true,
		EnableProfilingHandler: true, EnableDebugFlagsHandler: true,
	}
}

type flags struct{}

func (flags) GetFlagz() map[string]string { return map[string]string{"a": "b"} }

// endpoint is a path of the real handler with its methods.
type endpoint struct {
	method, path string
}

// endpoints lists the endpoints of the real stock handler: all routes of all web services and all plain handlers.
func endpoints(t *testing.T, handler *stockserver.Server) []endpoint {
	t.Helper()
	field := reflect.ValueOf(handler).Elem().FieldByName("restfulCont")
	container := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(interface {
		RegisteredWebServices() []*restful.WebService
		RegisteredHandlePaths() []string
	})
	var found []endpoint
	for _, service := range container.RegisteredWebServices() {
		for _, route := range service.Routes() {
			found = append(found, endpoint{route.Method, fillParameters(route.Path)})
		}
	}
	for _, path := range container.RegisteredHandlePaths() {
		found = append(found, endpoint{http.MethodGet, path}, endpoint{http.MethodPost, path})
	}
	return found
}

// fillParameters replaces the parameters of a path.
func fillParameters(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, "{") {
			parts[i] = "x"
		}
	}
	return strings.Join(parts, "/")
}

func allFeatures(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, zpagesfeatures.ComponentFlagz, true)
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, zpagesfeatures.ComponentStatusz, true)
}

// Requests to each path of the secure handler are rejected without authentication (401) and without authorization
// (403); authorized requests reach the handler.
func TestEveryEndpointIsGuarded(t *testing.T) {
	allFeatures(t)
	for name, config := range map[string]*kubeletconfig.KubeletConfiguration{
		"debugging":    debugConfig(),
		"no debugging": {},
		"parts off":    {EnableDebuggingHandlers: true},
	} {
		t.Run(name, func(t *testing.T) {
			auth := newAuth(func(authorizer.Attributes) bool { return true })
			handler := stockserver.NewServer(t.Context(), newWorld(testPod("x", "x", false)).host(), analyzer{}, nil, flags{},
				auth, config)
			paths := endpoints(t, &handler)
			if len(paths) < 20 {
				t.Fatalf("only %d endpoints found", len(paths))
			}
			for _, e := range paths {
				for token, want := range map[string]int{"": 401, "broken": 401, "nobody": 403} {
					if got := request(t, &handler, e, token).Code; got != want {
						t.Errorf("%s %s as %q: %d, want %d", e.method, e.path, token, got, want)
					}
				}
				if slowPaths(e) {
					continue
				}
				if got := request(t, &handler, e, "reader").Code; got == 401 || got == 403 {
					t.Errorf("%s %s authorized: %d", e.method, e.path, got)
				}
			}
		})
	}
}

// Unknown paths have the same status code for all users.
func TestUnknownPaths(t *testing.T) {
	auth := newAuth(func(authorizer.Attributes) bool { return true })
	handler := stockserver.NewServer(t.Context(), newWorld().host(), analyzer{}, nil, flags{}, auth, debugConfig())
	for _, path := range []string{"/", "/no/such/path", "/api", "/healthzz", "//pods"} {
		for _, token := range []string{"", "nobody", "reader"} {
			if got := request(t, &handler, endpoint{"GET", path}, token).Code; got == 200 {
				t.Errorf("GET %s as %q: %d", path, token, got)
			}
		}
	}
}

// slowPaths are paths whose requests take seconds by design.
func slowPaths(e endpoint) bool { return strings.HasPrefix(e.path, "/debug/pprof") }

func request(t *testing.T, handler http.Handler, e endpoint, token string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), e.method, e.path, nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, r)
	return recorder
}

// The attributes of authorization requests are part of the interface: cluster roles depend on them.
func TestAuthorizationAttributes(t *testing.T) {
	allFeatures(t)
	tests := []struct {
		method, path, verb, subresource string
	}{
		{"GET", "/metrics", "get", "metrics"},
		{"GET", "/metrics/cadvisor", "get", "metrics"},
		{"GET", "/stats/summary", "get", "stats"},
		{"GET", "/logs/syslog", "get", "log"},
		{"POST", "/checkpoint/x/x/c", "create", "checkpoint"},
		{"GET", "/pods", "get", "pods,proxy"},
		{"GET", "/runningpods/", "get", "pods,proxy"},
		{"GET", "/healthz", "get", "healthz,proxy"},
		{"GET", "/configz", "get", "configz,proxy"},
		{"GET", "/statusz", "get", "statusz"},
		{"POST", "/exec/x/x/c", "create", "proxy"},
		{"GET", "/exec/x/x/c", "get", "proxy"},
		{"POST", "/run/x/x/c", "create", "proxy"},
		{"GET", "/attach/x/x/c", "get", "proxy"},
		{"GET", "/portForward/x/x", "get", "proxy"},
		{"GET", "/containerLogs/x/x/c", "get", "proxy"},
		{"PUT", "/debug/flags/v", "update", "proxy"},
		{"GET", "/debug/pods", "get", "pods,proxy"},    // ours, as /pods
		{"GET", "/debug/plugins", "get", "pods,proxy"}, // ours, as /pods
	}
	auth := newAuth(func(authorizer.Attributes) bool { return false })
	handler := debugHandler(t, (&oneStuckPod{}).Views, auth, debugConfig())
	for _, tc := range tests {
		auth.asked = nil
		request(t, handler, endpoint{tc.method, tc.path}, "reader")
		var subresources []string
		for _, a := range auth.asked {
			subresources = append(subresources, a.GetSubresource())
			if a.GetVerb() != tc.verb || a.GetResource() != "nodes" || a.GetName() != "n" || a.GetUser().GetName() != "reader" {
				t.Errorf("%s %s requests %s %s %s", tc.method, tc.path, a.GetVerb(), a.GetResource(), a.GetName())
			}
		}
		if got := strings.Join(subresources, ","); got != tc.subresource {
			t.Errorf("%s %s requests nodes/%s, want %s", tc.method, tc.path, got, tc.subresource)
		}
	}
}
