package plugins

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// podPaths begins the paths of the pods of a case.
const podPaths = "/api/v1/namespaces/ns/pods/"

// apiServer is the part of an API server that evicts the pods of a node, at a socket. It verifies requests as the real
// one does, and the agent gets the deletion of a pod whose eviction it accepts. The clock is that of the killer: time
// passes for an attempt only when the clock is stepped.
type apiServer struct {
	t     *testing.T
	node  *node
	clock *clocktesting.FakeClock

	mu sync.Mutex
	// away: connections break. refused are the answers for pods that are not evicted, replaced the UIDs of those that
	// exist under the names of pods.
	away     bool
	refused  map[string]*apierrors.StatusError
	replaced map[string]types.UID
	budgets  []policyv1.PodDisruptionBudget
	calls    []apiCall
}

// apiCall is a request to evict a pod.
type apiCall struct {
	pod      string
	killer   snapshot.Killer
	grace    int64
	at       time.Time
	accepted bool
}

// newAPIServer returns an API server that runs until the end of the test, and a client of it.
func newAPIServer(t *testing.T, n *node) (*apiServer, kubernetes.Interface) {
	t.Helper()
	s := &apiServer{t: t, node: n, clock: clocktesting.NewFakeClock(time.Now()),
		refused: map[string]*apierrors.StatusError{}, replaced: map[string]types.UID{}}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return s, client
}

// set changes what the server answers.
func (s *apiServer) set(change func(*apiServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// withBudget is the answer for a pod whose disruption budget allows no disruption, and names a time to the next call.
func withBudget(retryAfter int) *apierrors.StatusError {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 3 healthy pods and has 3 currently",
	}}
	return err
}

var forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "pods/eviction"}, "a", nil)

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		s.note(r)
		panic(http.ErrAbortHandler)
	}
	name, sub, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, podPaths), "/")
	switch {
	case r.Method == http.MethodGet && r.URL.Path == "/apis/policy/v1/namespaces/ns/poddisruptionbudgets":
		write(w, http.StatusOK, &policyv1.PodDisruptionBudgetList{
			TypeMeta: metav1.TypeMeta{Kind: "PodDisruptionBudgetList", APIVersion: "policy/v1"}, Items: s.budgets,
		})
	case r.Method == http.MethodGet && sub == "":
		pod := s.podOf(name)
		pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
		write(w, http.StatusOK, pod)
	case r.Method == http.MethodPost && sub == "eviction", r.Method == http.MethodDelete && sub == "":
		s.evict(w, r, s.podOf(name))
	default:
		s.t.Errorf("unexpected request %s %s", r.Method, r.URL.Path)
		w.WriteHeader(http.StatusNotFound)
	}
}

// podOf returns the pod that the server has under a name.
func (s *apiServer) podOf(name string) *v1.Pod {
	pod := pod(name)
	if uid := s.replaced[name]; uid != "" {
		pod.UID = uid
	}
	return pod
}

// note adds a request that breaks to the calls.
func (s *apiServer) note(r *http.Request) {
	name, sub, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, podPaths), "/")
	killer := snapshot.DeleteAPI
	if sub == "eviction" {
		killer = snapshot.EvictionAPI
	}
	s.calls = append(s.calls, apiCall{pod: name, killer: killer, at: s.clock.Now()})
}

// evict answers a request to evict a pod.
func (s *apiServer) evict(w http.ResponseWriter, r *http.Request, pod *v1.Pod) {
	s.note(r)
	c := &s.calls[len(s.calls)-1]
	options, err := deleteOptions(r, c)
	if err != nil {
		s.t.Errorf("request to evict %s: %v", c.pod, err)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.grace = *options.GracePeriodSeconds
	refused := s.refused[c.pod]
	if *options.Preconditions.UID != pod.UID {
		refused = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, c.pod, io.ErrUnexpectedEOF)
	}
	if refused != nil {
		status := refused.Status()
		status.Kind, status.APIVersion = "Status", "v1"
		if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(d.RetryAfterSeconds))
		}
		write(w, int(status.Code), &status)
		return
	}
	c.accepted = true
	s.node.deleted(c.pod, c.grace)
	write(w, http.StatusCreated, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
	})
}

// deleteOptions returns the options of a request, which must have nothing but a grace period and a UID.
func deleteOptions(r *http.Request, c *apiCall) (options metav1.DeleteOptions, err error) {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return options, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if c.killer == snapshot.EvictionAPI {
		var e policyv1.Eviction
		if err := decoder.Decode(&e); err != nil {
			return options, err
		}
		if e.DeleteOptions == nil || e.Kind != "Eviction" || e.APIVersion != "policy/v1" || e.Namespace != "ns" ||
			e.Name != c.pod {
			return options, fmt.Errorf("the body is no eviction of the pod by policy/v1: %s", data)
		}
		options = *e.DeleteOptions
	} else if err := decoder.Decode(&options); err != nil {
		return options, err
	}
	if options.GracePeriodSeconds == nil || options.Preconditions == nil || options.Preconditions.UID == nil ||
		options.Preconditions.ResourceVersion != nil || options.PropagationPolicy != nil || options.DryRun != nil {
		return options, fmt.Errorf("the options are not a grace period and a UID alone: %s", data)
	}
	return options, nil
}

func write(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// of returns the requests to evict a pod, or all pods if it is empty, as killer pod/grace period, with an exclamation
// mark if they were accepted.
func (s *apiServer) of(pod string) (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		if pod != "" && c.pod != pod {
			continue
		}
		text := fmt.Sprintf("%s %s/%d", c.killer, c.pod, c.grace)
		if c.accepted {
			text += "!"
		}
		list = append(list, text)
	}
	if pod == "" {
		slices.Sort(list)
	}
	return list
}

// times returns the times of the requests to evict a pod, from the first one.
func (s *apiServer) times(pod string) (list []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first time.Time
	for _, c := range s.calls {
		if c.pod != pod {
			continue
		}
		if first.IsZero() {
			first = c.at
		}
		list = append(list, c.at.Sub(first))
	}
	return list
}

// deleted is the deletion of a pod, which terminates from now on.
func (n *node) deleted(name string, grace int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, pod := range n.pods {
		if pod.Name == name {
			pod = pod.DeepCopy()
			pod.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second)))
			pod.DeletionGracePeriodSeconds = &grace
			n.pods = slices.Clone(n.pods)
			n.pods[i] = pod
		}
	}
}
