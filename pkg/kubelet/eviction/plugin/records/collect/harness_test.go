package collect

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// apiServer answers lists of disruption budgets, and records the requests.
type apiServer struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	// under is the number of requests that have no answer yet, most the highest it was.
	under, most int
	// budgets are those of all namespaces, by namespace.
	budgets map[string][]policyv1.PodDisruptionBudget
	// answer answers instead if it is not nil.
	answer http.HandlerFunc
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{budgets: map[string][]policyv1.PodDisruptionBudget{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	s.under++
	s.most = max(s.most, s.under)
	answer := s.answer
	name := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/apis/policy/v1/namespaces/"), "/poddisruptionbudgets")
	list := policyv1.PodDisruptionBudgetList{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudgetList"}, Items: s.budgets[name],
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.under--
	}()
	if answer != nil {
		answer(w, r)
		return
	}
	reply(w, http.StatusOK, list)
}

func reply(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A client that has gone reads no answer.
	_ = json.NewEncoder(w).Encode(object)
}

// failing answers with a status of the API server.
func failing(code int, reason metav1.StatusReason) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		reply(w, code, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Reason: reason, Code: int32(code),
		})
	}
}

// hanging answers when the client has gone.
func hanging(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// silent is the time-out of a test in which the server does not answer.
const silent = 50 * time.Millisecond

func (s *apiServer) set(answer http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// asked returns the requests since the last call of it.
func (s *apiServer) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// allow adds a budget for all pods of a namespace.
func (s *apiServer) allow(namespace string, allowed int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budgets[namespace] = append(s.budgets[namespace], policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "budget", Namespace: namespace},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		Status: policyv1.PodDisruptionBudgetStatus{
			DisruptionsAllowed: allowed, CurrentHealthy: 2, DesiredHealthy: 3, ExpectedPods: 4,
		},
	})
}

// rig is a collector of a node with pods.
type rig struct {
	*Collector
	server *apiServer
	clock  *clocktesting.FakePassiveClock
	pods   map[types.UID]*v1.Pod
}

// start is when the tests begin.
var start = time.Date(2026, 3, 1, 12, 40, 0, 0, time.UTC)

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{
		server: newAPIServer(t), clock: clocktesting.NewFakePassiveClock(start), pods: map[types.UID]*v1.Pod{},
	}
	client, err := policyclient.NewForConfig(&rest.Config{Host: r.server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	r.Collector = New(Config{Client: client, PodByUID: r.pod, Clock: r.clock})
	// No test depends on the time in which the server answers.
	r.budgets.timeout = 5 * time.Minute
	return r
}

func (r *rig) pod(uid types.UID) (*v1.Pod, bool) {
	pod, ok := r.pods[uid]
	return pod, ok
}

func (r *rig) pass(d time.Duration) { r.clock.SetTime(r.clock.Now().Add(d)) }

// podIn returns a pod whose UID has the namespace in it.
func podIn(namespace, name string, owner types.UID) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(namespace + "/" + name), Labels: map[string]string{"app": name},
	}}
	if owner != "" {
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", UID: owner, Controller: new(true)}}
	}
	return pod
}
