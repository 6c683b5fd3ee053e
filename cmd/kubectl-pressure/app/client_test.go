package app

import (
	"context"
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"
)

// asked is what a node was asked for with --direct.
type asked struct{ path, query, authorization string }

// directTo returns a direct asker for a server, and the Node of it. Its cluster gives tokens of the ServiceAccount.
func directTo(t *testing.T, server *httptest.Server) (*direct, *nodeInfo, *fake.Clientset) {
	t.Helper()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n := node("n1")
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeHostName, Address: "x"}, {Type: v1.NodeInternalIP, Address: host}}
	client := fake.NewClientset(n)
	client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "token" || a.GetNamespace() != "plimsoll-system" {
			t.Errorf("%v", a)
		}
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: "of-the-reader", ExpirationTimestamp: metav1.NewTime(time.Now().Add(tokenSeconds * time.Second))}}, nil
	})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := newDirect(client, &rest.Config{BearerToken: "of-the-user", Username: "user", Password: "secret"},
		&directOptions{serviceAccount: "plimsoll-system/pressure-reader", ca: ca, addressType: string(v1.NodeInternalIP)})
	if err != nil {
		t.Fatal(err)
	}
	return d, n, client
}

// The node gets the token of the ServiceAccount, and nothing of the user; one token serves for several requests.
func TestDirect(t *testing.T) {
	var got []asked
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, asked{r.URL.Path, r.URL.RawQuery, r.Header.Get("Authorization")})
		if len(r.TLS.PeerCertificates) > 0 {
			t.Error("the node got a certificate")
		}
		_, _ = w.Write([]byte(`{"node":"n1"}`))
	}))
	defer server.Close()
	d, n, client := directTo(t, server)
	c := &cluster{Interface: client, ask: d}
	for range 2 {
		var status map[string]any
		if err := c.page(t.Context(), n, "decisions/7", map[string]string{"pod": "a/b"}, &status); err != nil {
			t.Fatal(err)
		}
	}
	want := asked{"/debug/pressure/decisions/7", "pod=a%2Fb", "Bearer of-the-reader"}
	if len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("%+v", got)
	}
	tokens := 0
	for _, a := range client.Actions() {
		if a.GetSubresource() == "token" {
			tokens++
		}
	}
	if tokens != 1 {
		t.Errorf("%d tokens", tokens)
	}
}

// The token is not sent to where a node redirects, and not to a server whose certificate is not verified.
func TestDirectKeepsTheToken(t *testing.T) {
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer elsewhere.Close()
	server := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL, http.StatusFound))
	defer server.Close()
	d, n, _ := directTo(t, server)
	if _, err := d.open(t.Context(), n, "status", nil); err == nil || !strings.Contains(err.Error(), "302") {
		t.Error(err)
	}
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "localhost"}}
	if _, err := d.open(t.Context(), n, "status", nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a certificate for another name was accepted: %v", err)
	}
}

func TestDirectErrors(t *testing.T) {
	for code, want := range map[int]string{
		http.StatusNotFound: errNoPage.Error(), http.StatusForbidden: "403 Forbidden: no",
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "no", code)
		}))
		d, n, _ := directTo(t, server)
		if _, err := d.open(t.Context(), n, "status", nil); err == nil || err.Error() != want {
			t.Errorf("%d: %v", code, err)
		}
		// A decision may have been dropped meanwhile, which is no fault of the node.
		_, err := d.open(t.Context(), n, "decisions/7", nil)
		if got := apierrors.IsNotFound(err); got != (code == http.StatusNotFound) {
			t.Errorf("%d for a decision: %v", code, err)
		}
		server.Close()
	}
	if _, err := newDirect(nil, &rest.Config{}, &directOptions{serviceAccount: "name"}); err == nil {
		t.Error("a ServiceAccount without a namespace was accepted")
	}
	if _, err := newDirect(nil, &rest.Config{}, &directOptions{serviceAccount: "a/b"}); err == nil {
		t.Error("nothing to verify nodes with was accepted")
	}
	d := &direct{addressType: v1.NodeInternalIP}
	if _, err := d.open(context.Background(), node("n1"), "status", nil); err == nil {
		t.Error("a Node without addresses was asked")
	}
}

// A stock kubelet guards pages that it does not have as nodes/proxy, which the reader does not have: that is said, and
// no refusal of a node that has the pages.
func TestDirectToAStockKubelet(t *testing.T) {
	text := "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[proxy])\n"
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(text))
	}))
	defer server.Close()
	d, n, client := directTo(t, server)
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}}
	if _, err := client.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w := &world{cluster: &cluster{Interface: client, ask: d}}
	out, messages, code := w.run(t, "status", "n1", "--direct")
	expect(t, out, "The kubelet is stock, and with --direct its pages cannot be read", "nodes/proxy", "DiskPressure")
	if code != 0 || messages != "" {
		t.Errorf("%d %s", code, messages)
	}
	out, _, _ = w.run(t, "status", "--direct")
	expect(t, out, "stock", "DiskPressure")
	_, messages, code = w.run(t, "why", "pod-00", "--direct")
	expect(t, messages, "1 of 1 nodes have no decision log; node n1: ", "with --direct it can be asked nothing")
	if code != ExitNotFound {
		t.Errorf("%d %s", code, messages)
	}
	text = "Forbidden (user=reader, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
	if _, messages, code = w.run(t, "status", "n1", "--direct"); code != ExitError || !strings.Contains(messages, "403") {
		t.Errorf("%d %s", code, messages)
	}
}

// The roles that are shipped have what the commands need and never nodes/proxy.
func TestShippedRoles(t *testing.T) {
	files, err := filepath.Glob("../../../config/rbac/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	rules := map[string][]rbacv1.PolicyRule{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			var role rbacv1.ClusterRole
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, r := range role.Rules {
				for _, resource := range r.Resources {
					if resource == "nodes/proxy" || resource == "nodes/*" || resource == "*" {
						t.Errorf("%s: %s has %s", file, role.Name, resource)
					}
				}
			}
			if len(role.Rules) > 0 {
				rules[role.Kind+" "+role.Name] = role.Rules
			}
		}
	}
	reader := rules["ClusterRole plimsoll:pressure-reader"]
	if len(reader) != 1 || len(reader[0].Resources) != 1 || reader[0].Resources[0] != "nodes/pods" ||
		len(reader[0].Verbs) != 1 || reader[0].Verbs[0] != "get" {
		t.Errorf("%+v", reader)
	}
	user := rules["Role plimsoll:pressure-user"]
	if len(user) != 1 || len(user[0].ResourceNames) != 1 || user[0].Resources[0] != "serviceaccounts/token" {
		t.Errorf("%+v", user)
	}
}

// The manifest for krew has what krew requires, and lists files that exist or are built.
func TestKrewManifest(t *testing.T) {
	text, err := os.ReadFile("../../../config/krew/pressure.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version, Homepage, ShortDescription, Description, Caveats string
			Platforms                                                 []struct {
				Selector metav1.LabelSelector
				URI      string
				SHA256   string
				Bin      string
				Files    []struct{ From, To string }
			}
		}
	}
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" ||
		m.Metadata.Name != "pressure" || m.Spec.Version == "" || len(m.Spec.ShortDescription) > 50 || m.Spec.Homepage == "" ||
		len(m.Spec.Platforms) == 0 {
		t.Errorf("%+v", m)
	}
	for _, p := range m.Spec.Platforms {
		if len(p.SHA256) != 64 || p.Bin != "kubectl-pressure" || p.Selector.MatchLabels["os"] != "linux" || p.URI == "" {
			t.Errorf("%+v", p)
		}
		for _, f := range p.Files {
			found := f.From == "kubectl-pressure"
			for _, dir := range []string{"../../../", "../../../config/krew/"} {
				_, err := os.Stat(dir + f.From)
				found = found || err == nil
			}
			if !found {
				t.Errorf("%s does not exist", f.From)
			}
		}
	}
}

func TestTexts(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0", 9: "9", 10240: "10Ki", -20 << 20: "-20Mi", 3 << 30: "3072Mi", 1 << 40: "1024Gi",
	} {
		if got := amount("memory.available", n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	if got := amount("pid.available", 20480); got != "20480" {
		t.Error(got)
	}
	for text, want := range map[string]string{
		"plain": "plain", hostile: `"\x1b[2J\u202e<b>"`, "tab\t": `"tab\t"`, `back\slash`: `"back\\slash"`,
	} {
		if got := plain(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]bool{
		"12345678-1234-1234-1234-123456789abc": true, "pod-1": false, "12345678-1234-1234-1234-123456789abX": false,
	} {
		if isUID(text) != want {
			t.Errorf("%s", text)
		}
	}
}
