package killer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// server is an API server. Each call for a pod gets the answer of the test: a status, or nil for success; errHang for
// none, errBroken for a connection that breaks.
type server struct {
	mu     sync.Mutex
	answer func(pod string, call int) error
	calls  []call
	// now and most are the calls under way, and the most that there were.
	now, most int
	// existing is the UID of the pods that exist, their name if empty.
	existing types.UID
	began    time.Time
}

type call struct {
	pod, method, path string
	at                time.Duration
	options           metav1.DeleteOptions
}

type silence string

func (s silence) Error() string { return string(s) }

const (
	errHang   = silence("hang")
	errBroken = silence("broken")
	// errRefused is the error of a connection that is refused.
	errRefused = syscall.ECONNREFUSED
)

// blockedFor is the answer of an API server whose disruption budget does not allow an eviction.
func blockedFor(retryAfter int) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 3 healthy pods and has 3 currently",
	}}
	return err
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/ns/pods/"), "/")[0]
	if r.Method == http.MethodGet {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		if s.existing != "" {
			pod.UID = s.existing
		}
		write(w, http.StatusOK, pod)
		return
	}
	s.mu.Lock()
	n := 0
	for _, c := range s.calls {
		if c.pod == name {
			n++
		}
	}
	s.calls = append(s.calls, call{pod: name, method: r.Method, path: r.URL.Path, at: time.Since(s.began),
		options: optionsOf(r)})
	s.now++
	s.most = max(s.most, s.now)
	answer := s.answer
	s.mu.Unlock()
	var err error
	if answer != nil {
		err = answer(name, n)
	}
	if err == errHang {
		<-r.Context().Done()
	}
	s.mu.Lock()
	s.now--
	s.mu.Unlock()
	switch status, ok := err.(apierrors.APIStatus); {
	case ok:
		st := status.Status()
		st.Kind, st.APIVersion = "Status", "v1"
		if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
		}
		write(w, int(st.Code), st)
	case err == errRefused:
		panic(errRefused)
	case err != nil:
		panic(http.ErrAbortHandler)
	default:
		write(w, http.StatusCreated, &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status: metav1.StatusSuccess})
	}
}

func optionsOf(r *http.Request) (options metav1.DeleteOptions) {
	body, _ := io.ReadAll(r.Body)
	if r.Method == http.MethodDelete {
		_ = json.Unmarshal(body, &options)
		return options
	}
	var e policyv1.Eviction
	_ = json.Unmarshal(body, &e)
	if e.DeleteOptions != nil {
		return *e.DeleteOptions
	}
	return options
}

func write(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

// RoundTrip answers without a socket, so that it may be used in a bubble of synctest.
func (s *server) RoundTrip(r *http.Request) (response *http.Response, err error) {
	defer func() {
		if p := recover(); p != nil {
			response, err = nil, errBroken
			if p == errRefused {
				err = errRefused
			}
			if cause := r.Context().Err(); cause != nil {
				err = cause
			}
		}
	}()
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, r)
	return recorder.Result(), nil
}

func (s *server) set(answer func(pod string, call int) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *server) seen() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// times are the times of the calls for a pod.
func (s *server) times(pod string) (list []time.Duration) {
	for _, c := range s.seen() {
		if c.pod == pod {
			list = append(list, c.at)
		}
	}
	return list
}

// rig is a killer with what it works with.
type rig struct {
	*testing.T

	api    *server
	killer *Killer

	mu       sync.Mutex
	requests []snapshot.Request
	pods     map[string]*v1.Pod
	changes  int
	// log has what was called.
	log     []string
	blocked map[string][]string
}

// virtual returns a rig without sockets for a bubble of synctest.
func virtual(t *testing.T) *rig {
	api := &server{began: time.Now()}
	return newRig(t, api, &rest.Config{Host: "http://api", QPS: -1, Transport: api}, clock.RealClock{})
}

func newRig(t *testing.T, api *server, config *rest.Config, c clock.WithDelayedExecution) *rig {
	t.Helper()
	r := &rig{T: t, api: api, pods: map[string]*v1.Pod{}, blocked: map[string][]string{}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r.killer, err = New(Config{Client: client, Requests: r.get, Clock: c, Changed: func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changes++
		r.log = append(r.log, "changed")
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) get() []snapshot.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// changed returns how often Changed was called.
func (r *rig) changed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

// asks has plugins request the eviction of these pods by a killer, and of no others.
func (r *rig) asks(killer snapshot.Killer, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
	for _, name := range names {
		r.requests = append(r.requests, snapshot.Request{UID: types.UID(name), Killer: killer})
		if r.pods[name] == nil {
			r.pods[name] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		}
	}
}

// change replaces a pod, or removes it if f is nil.
func (r *rig) change(name string, f func(*v1.Pod)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f == nil {
		delete(r.pods, name)
		return
	}
	pod := r.pods[name].DeepCopy()
	f(pod)
	r.pods[name] = pod
}

// grants has plugins request the eviction of a pod with this grace period.
func (r *rig) grants(name string, grace int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = slices.Clone(r.requests)
	for i := range r.requests {
		if r.requests[i].UID == types.UID(name) {
			r.requests[i].GraceSeconds = &grace
		}
	}
}

func (r *rig) evict(ctx context.Context, killer snapshot.Killer, name string, grace int64) <-chan eviction.APIEnding {
	r.grants(name, grace)
	return r.killer.Evict(ctx, eviction.APIKill{
		Pod: r.pods[name], Killer: killer, GracePeriodSeconds: grace,
		Current: func() (*v1.Pod, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			pod, ok := r.pods[name]
			return pod, ok
		},
		Accepted: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.log = append(r.log, "accepted "+name)
		},
		Blocked: func(why error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.blocked[name] = append(r.blocked[name], why.Error())
		},
	})
}

func (r *rig) expect(what string, got, want any) {
	r.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.Errorf("%s: %v, want %v", what, got, want)
	}
}

// ended returns the ending of an attempt that has ended.
func (r *rig) ended(endings <-chan eviction.APIEnding) eviction.APIEnding {
	r.Helper()
	select {
	case e := <-endings:
		return e
	default:
		r.Fatal("the attempt has not ended")
		return eviction.APIEnding{}
	}
}

func (r *rig) underWay(endings <-chan eviction.APIEnding) {
	r.Helper()
	select {
	case e := <-endings:
		r.Fatalf("the attempt has ended: %+v", e)
	default:
	}
}
