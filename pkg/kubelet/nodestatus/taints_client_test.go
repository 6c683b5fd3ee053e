package nodestatus

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeAPI serves one Node over TLS, and records the requests.
type nodeAPI struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	// code is the code of the answers, with Retry-After unless it is 200.
	code int
}

func serveNode(t *testing.T) *nodeAPI {
	a := &nodeAPI{code: http.StatusOK}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *nodeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	text := fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL.Path, r.URL.Query().Get("fieldManager"),
		r.Header.Get("Authorization"), body)
	a.requests = append(a.requests, strings.Join(strings.Fields(text), " "))
	w.Header().Set("Content-Type", "application/json")
	node := v1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: testNode, ResourceVersion: "7"},
	}
	if a.code != http.StatusOK {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(a.code)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(a.code),
			Reason: metav1.StatusReasonForbidden,
		})
		return
	}
	_ = json.NewEncoder(w).Encode(node)
}

// last returns the last request, and how many there were.
func (a *nodeAPI) last() (string, int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.requests[len(a.requests)-1], len(a.requests)
}

// write writes a kubeconfig file with names of files relative to it.
func (a *nodeAPI) write(t *testing.T, path, user string) {
	t.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw})
	writeFile(t, filepath.Join(filepath.Dir(path), "ca.crt"), string(authority))
	writeFile(t, path, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": [{"name": "c", "cluster": {"server": %q, "certificate-authority": "ca.crt"}}],
		"users": [{"name": "u", "user": %s}, {"name": "other", "user": {"client-certificate": "missing.crt"}}],
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}`, a.URL, user))
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTaintClientSendsEachRequestOnce(t *testing.T) {
	a := serveNode(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	a.write(t, path, `{"token": "first"}`)
	clients := &kubeconfigClients{node: testNode}
	api, err := clients.client(path)
	if err != nil {
		t.Fatal(err)
	}
	if node, err := api.read(t.Context()); err != nil || node.ResourceVersion != "7" {
		t.Fatalf("%+v, %v", node, err)
	}
	if got, _ := a.last(); got != "GET /api/v1/nodes/10.1.2.3 Bearer first" {
		t.Errorf("request %q", got)
	}
	if _, err := api.patch(t.Context(), []byte(`{"spec":{}}`)); err != nil {
		t.Fatal(err)
	}
	if got, _ := a.last(); got != `PATCH /api/v1/nodes/10.1.2.3 plimsoll-node-taints Bearer first {"spec":{}}` {
		t.Errorf("request %q", got)
	}
	for code, check := range map[int]struct{ rejected, refused bool }{
		http.StatusForbidden: {true, true}, http.StatusUnauthorized: {true, true},
		http.StatusUnprocessableEntity: {true, true},
		http.StatusConflict:            {true, true}, // the reason counts, which is Forbidden here
		http.StatusServiceUnavailable:  {}, http.StatusInternalServerError: {},
	} {
		a.mu.Lock()
		a.code, a.requests = code, nil
		a.mu.Unlock()
		_, err := api.patch(t.Context(), []byte(`{}`))
		if _, n := a.last(); n != 1 || err == nil || rejected(err) != check.rejected || refused(err) != check.refused {
			t.Errorf("%d: %d requests, rejected %v, refused %v: %v", code, n, rejected(err), refused(err), err)
		}
	}
}

// A file that changes, and one that it refers to, is used for the next request. The same file has the same client.
func TestKubeconfigIsReadAgain(t *testing.T) {
	a := serveNode(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	clients := &kubeconfigClients{node: testNode}
	usable := func(token string) taintAPI {
		t.Helper()
		api, err := clients.client(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, _ := a.last(); !strings.HasSuffix(got, token) {
			t.Errorf("request %q, want one with %q", got, token)
		}
		return api
	}
	broken := func(want string) {
		t.Helper()
		if _, err := clients.client(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if clients.differ(path) {
			t.Error("the broken file differs from itself")
		}
	}
	broken(path)
	a.write(t, path, `{"token": "first"}`)
	if !clients.differ(path) || clients.path != path {
		t.Error("the new file does not differ")
	}
	if first := usable("first"); usable("first") != first || clients.differ(path) {
		t.Error("the same file has another client")
	}
	a.write(t, path, `{"token": "second"}`)
	usable("second")
	// The authority of the server is in a file of its own.
	writeFile(t, filepath.Join(dir, "ca.crt"), "no certificate")
	if !clients.differ(path) {
		t.Error("a file that it refers to was changed, and it does not differ")
	}
	if _, err := clients.client(path); err == nil {
		t.Error("an authority that is no certificate is accepted")
	}
	writeFile(t, path, "{")
	broken(path)
	writeFile(t, path, `{"apiVersion": "v1", "kind": "Config"}`)
	broken("context")
	if _, err := clients.client(""); !errors.Is(err, errNoKubeconfig) || clients.differ("") || !clients.differ(path) {
		t.Errorf("without a file: %v", err)
	}
	a.write(t, path, `{"tokenFile": "token"}`)
	writeFile(t, filepath.Join(dir, "token"), "third")
	usable("third")
}

// A kubeconfig file runs no program: it would run as root, and without a limit of its time.
func TestKubeconfigWithAProgram(t *testing.T) {
	a := serveNode(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	a.write(t, path, `{"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true",
		"interactiveMode": "Never"}}`)
	clients := &kubeconfigClients{node: testNode}
	if _, err := clients.client(path); err == nil || !strings.Contains(err.Error(), "exec") {
		t.Errorf("got %v", err)
	}
}

// Only regular files are read: others may have no end, or wait for a writer.
func TestKubeconfigIsARegularFile(t *testing.T) {
	a := serveNode(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "kubeconfig")
	clients := &kubeconfigClients{node: testNode}
	for _, file := range []string{"/dev/null", "/dev/zero", dir} {
		if _, err := clients.client(file); err == nil || !strings.Contains(err.Error(), "regular file") {
			t.Errorf("%s: %v", file, err)
		}
	}
	for user, want := range map[string]string{
		`{"client-certificate": "/dev/null", "client-key": "/dev/null"}`: "regular file",
		`{"tokenFile": "/dev/null"}`:                                     "regular file",
	} {
		a.write(t, path, user)
		if _, err := clients.client(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", user, err)
		}
	}
	writeFile(t, path, strings.Repeat(" ", 1<<20+1))
	if _, err := clients.client(path); err == nil || !strings.Contains(err.Error(), "1048576 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestRejected(t *testing.T) {
	conflict := apierrors.NewConflict(v1.Resource("nodes"), testNode, errLost)
	for _, c := range []struct {
		err               error
		rejected, refused bool
	}{
		{errLost, false, false}, {forbidden(), true, true}, {conflict, true, false},
		{fmt.Errorf("patch: %w", conflict), true, false},
		{apierrors.NewTooManyRequests("busy", 1), true, false},
		{apierrors.NewNotFound(v1.Resource("nodes"), testNode), true, false},
		{apierrors.NewTimeoutError("slow", 1), false, false},
		{apierrors.NewServerTimeout(v1.Resource("nodes"), "patch", 1), false, false},
	} {
		if rejected(c.err) != c.rejected || refused(c.err) != c.refused {
			t.Errorf("%v: rejected %v, refused %v", c.err, rejected(c.err), refused(c.err))
		}
	}
}
