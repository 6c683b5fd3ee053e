package app

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// The API server reviews tokens and access.
func TestRequestsAreReviewedByTheAPIServer(t *testing.T) {
	p := &process{
		settings: validSettings(t, "--anonymous-auth=false", "--authentication-token-webhook", "--authorization-mode=Webhook",
			"--kubeconfig=/set"),
	}
	p.deps.Identity.NodeName = "here"
	p.deps.Clients.Kube = newFakeAPI(t).client()
	if err := p.makeAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		token, path string
		known       bool
		allowed     bool
	}{
		{"", "/metrics", false, false},
		{"stranger", "/metrics", false, false},
		{"nobody", "/metrics", true, false},
		{"reader", "/metrics", true, true},
		{"reader", "/pods", true, false},
		{"reader", "/exec/ns/pod/c", true, false},
	}
	for _, tc := range tests {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.path, nil)
		if tc.token != "" {
			request.Header.Set("Authorization", "Bearer "+tc.token)
		}
		answer, known, _ := p.deps.Serving.Auth.AuthenticateRequest(request)
		if known != tc.known {
			t.Errorf("%s as %q: known %v", tc.path, tc.token, known)
		}
		if !known {
			continue
		}
		allowed := false
		for _, attributes := range p.deps.Serving.Auth.GetRequestAttributes(t.Context(), answer.User, request) {
			decision, _, err := p.deps.Serving.Auth.Authorize(t.Context(), attributes)
			if err != nil {
				t.Fatal(err)
			}
			allowed = allowed || decision == authorizer.DecisionAllow
		}
		if allowed != tc.allowed {
			t.Errorf("%s as %q: allowed %v", tc.path, tc.token, allowed)
		}
	}
}

// A client certificate without a client CA is not authenticated, and causes no panic.
func TestClientCertificateWithoutCA(t *testing.T) {
	p := &process{settings: validSettings(t, "--anonymous-auth=true")}
	if err := p.makeAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	api := newFakeAPI(t)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://here/metrics", nil)
	request.TLS.PeerCertificates = append(request.TLS.PeerCertificates, api.ca)
	answer, known, err := p.deps.Serving.Auth.AuthenticateRequest(request)
	if err != nil || !known || !strings.Contains(answer.User.GetName(), "anonymous") {
		t.Errorf("got %v, %v, %v", answer, known, err)
	}
	if len(p.background) != 0 {
		t.Error("something to run without a CA file")
	}
}

// With all methods off the kubelet starts, as stock does, and rejects all requests, also those with a certificate.
func TestAllAuthenticationOff(t *testing.T) {
	settings := validSettings(t, "--anonymous-auth=false", "--container-runtime-endpoint=unix:///run/none.sock")
	if err := checkAuthentication(settings); err != nil {
		t.Error(err)
	}
	p := &process{settings: settings}
	if err := p.makeAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://here/metrics", nil)
	request.TLS.PeerCertificates = append(request.TLS.PeerCertificates, newFakeAPI(t).ca)
	request.Header.Set("Authorization", "Bearer reader")
	if answer, known, err := p.deps.Serving.Auth.AuthenticateRequest(request); err != nil || known {
		t.Errorf("got %v, %v, %v", answer, known, err)
	}
}
