package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
)

const secret = "eyJh.secret-token.x"

var alice = authenticationv1.UserInfo{
	Username: "system:serviceaccount:eviction:p", UID: "u1", Groups: []string{"system:serviceaccounts", "g"},
	Extra: map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/node-name": {"n1"}, "k": {"a", "b"}},
}

// The reviews have what the API server needs, and no audience: the token must be one for the API server.
func TestRequests(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(contentType, func(t *testing.T) {
			a := serveAPI(t)
			a.users[secret], a.permitted = alice, []string{alice.Username}
			if err := New(a.client(t, contentType), EvictionPlugins).Review(t.Context(), secret, "p"); err != nil {
				t.Fatal(err)
			}
			if want := []authenticationv1.TokenReviewSpec{{Token: secret}}; !reflect.DeepEqual(a.tokens, want) {
				t.Errorf("TokenReviews %+v, want %+v", a.tokens, want)
			}
			want := []authorizationv1.SubjectAccessReviewSpec{{
				User: alice.Username, UID: "u1", Groups: []string{"system:serviceaccounts", "g"},
				Extra: map[string]authorizationv1.ExtraValue{
					"authentication.kubernetes.io/node-name": {"n1"}, "k": {"a", "b"},
				},
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: "register", Group: "nodepressure.plimsoll.dev", Resource: "evictionplugins", Name: "p",
				},
			}}
			if !reflect.DeepEqual(a.access, want) {
				t.Errorf("SubjectAccessReviews %+v, want %+v", a.access, want)
			}
		})
	}
}

// Only an answer of the API server is a decision.
func TestDecisions(t *testing.T) {
	status := func(path string, code int, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != path {
				return false
			}
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
			return true
		}
	}
	token := func(s string) string {
		return `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":` + s + `}`
	}
	access := func(s string) string {
		return `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":` + s + `}`
	}
	for _, tc := range []struct {
		title, token, plugin, text string
		want                       error
		answer                     func(http.ResponseWriter, *http.Request) bool
	}{
		{title: "unknown token", token: "x", text: "invalid bearer token", want: pluginhost.ErrInvalidToken},
		{title: "another plugin", plugin: "q", text: "with the name q; no rule", want: pluginhost.ErrNotPermitted},
		{title: "another user", token: "bob", text: "bob must be allowed to register", want: pluginhost.ErrNotPermitted},
		{title: "no user", want: pluginhost.ErrInvalidToken,
			answer: status(tokenReviews, 201, token(`{"authenticated":true}`))},
		{title: "no status", want: pluginhost.ErrInvalidToken, answer: status(tokenReviews, 201, "{}")},
		{title: "denied", want: pluginhost.ErrNotPermitted,
			answer: status(accessReviews, 201, access(`{"allowed":true,"denied":true}`))},
		{title: "error of the authorizer", want: pluginhost.ErrNotPermitted, text: "webhook is away",
			answer: status(accessReviews, 201, access(`{"evaluationError":"webhook is away"}`))},
		{title: "TokenReview forbidden", text: "creating a TokenReview", answer: status(tokenReviews, 403, "{}")},
		{title: "TokenReview too often", text: "creating a TokenReview", answer: status(tokenReviews, 429, "{}")},
		{title: "TokenReview fails", text: "creating a TokenReview", answer: status(tokenReviews, 500, "{}")},
		{title: "no JSON", text: "creating a TokenReview", answer: status(tokenReviews, 201, "<html>")},
		{title: "large answer", text: "more than 1 MiB",
			answer: status(tokenReviews, 201, `"`+strings.Repeat("x", maxAnswerBytes)+`"`)},
		{title: "SubjectAccessReview forbidden", text: "creating a SubjectAccessReview",
			answer: status(accessReviews, 403, "{}")},
		{title: "SubjectAccessReview fails", text: "creating a SubjectAccessReview",
			answer: status(accessReviews, 503, "{}")},
	} {
		t.Run(tc.title, func(t *testing.T) {
			a := serveAPI(t)
			a.users[secret], a.permitted, a.answer = alice, []string{alice.Username}, tc.answer
			a.users["bob"] = authenticationv1.UserInfo{Username: "bob"}
			if tc.token == "" {
				tc.token = secret
			}
			if tc.plugin == "" {
				tc.plugin = "p"
			}
			err := New(a.client(t, ""), EvictionPlugins).Review(t.Context(), tc.token, tc.plugin)
			if err == nil || !strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v, want %q", err, tc.text)
			}
			for _, decision := range []error{pluginhost.ErrInvalidToken, pluginhost.ErrNotPermitted} {
				if errors.Is(err, decision) != (decision == tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
			}
		})
	}
}

// A request that has failed is not repeated: who calls tries again later.
func TestRequestsAreNotRepeated(t *testing.T) {
	a := serveAPI(t)
	var requests atomic.Int32
	a.answer = func(w http.ResponseWriter, _ *http.Request) bool {
		requests.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return true
	}
	if err := New(a.client(t, ""), EvictionPlugins).Review(t.Context(), secret, "p"); err == nil || requests.Load() != 1 {
		t.Errorf("got %v after %d requests", err, requests.Load())
	}
}

// A request ends with the context.
func TestAPIServerThatHangs(t *testing.T) {
	for _, path := range []string{tokenReviews, accessReviews} {
		t.Run(path, func(t *testing.T) {
			a := serveAPI(t)
			a.users[secret] = alice
			ctx, cancel := context.WithCancel(t.Context())
			a.answer = func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != path {
					return false
				}
				_, _ = io.Copy(io.Discard, r.Body) // so that the server finds the end of the connection
				cancel()
				<-r.Context().Done()
				return true
			}
			err := New(a.client(t, ""), EvictionPlugins).Review(ctx, secret, "p")
			if !errors.Is(err, context.Canceled) || errors.Is(err, pluginhost.ErrNotPermitted) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// Each request has a time limit of its own.
func TestTimeLimit(t *testing.T) {
	a := serveAPI(t)
	a.users[secret], a.permitted = alice, []string{alice.Username}
	var limited atomic.Int32
	client, err := kubernetes.NewForConfig(&rest.Config{Host: a.URL, Transport: transport(
		func(r *http.Request) (*http.Response, error) {
			if deadline, ok := r.Context().Deadline(); ok && time.Until(deadline) <= timeout {
				limited.Add(1)
			}
			return http.DefaultTransport.RoundTrip(r)
		})})
	if err != nil {
		t.Fatal(err)
	}
	if err := New(client, EvictionPlugins).Review(t.Context(), secret, "p"); err != nil || limited.Load() != 2 {
		t.Errorf("got %v, %d requests with a time limit", err, limited.Load())
	}
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// Nothing is cached.
func TestRevocation(t *testing.T) {
	a := serveAPI(t)
	a.users[secret], a.permitted = alice, []string{alice.Username}
	r := New(a.client(t, ""), EvictionPlugins)
	if err := r.Review(t.Context(), secret, "p"); err != nil {
		t.Fatal(err)
	}
	a.set(func() { a.permitted = nil })
	if err := r.Review(t.Context(), secret, "p"); !errors.Is(err, pluginhost.ErrNotPermitted) {
		t.Errorf("got %v after the permission was revoked", err)
	}
	a.set(func() { delete(a.users, secret) })
	if err := r.Review(t.Context(), secret, "p"); !errors.Is(err, pluginhost.ErrInvalidToken) {
		t.Errorf("got %v after the token has expired", err)
	}
}

// client-go logs bodies of requests and of answers from verbosity 8. Here it logs none with a token.
func TestTokenIsNotLogged(t *testing.T) {
	a := serveAPI(t)
	a.users[secret] = alice
	var log strings.Builder
	logger := funcr.New(func(prefix, args string) { fmt.Fprintln(&log, prefix, args) }, funcr.Options{Verbosity: 10})
	err := New(a.client(t, ""), EvictionPlugins).Review(klog.NewContext(t.Context(), logger), secret, "p")
	if !errors.Is(err, pluginhost.ErrNotPermitted) {
		t.Errorf("got %v", err)
	}
	if text := log.String(); !strings.Contains(text, "Request Body") || strings.Contains(text, secret) {
		t.Errorf("the log has the token, or nothing at all: %s", text)
	}
}
