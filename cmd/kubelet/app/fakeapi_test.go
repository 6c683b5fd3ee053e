package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// fakeAPI is an API server that signs every certificate request at once, and identifies clients by the common name of
// their certificate, else by their token.
type fakeAPI struct {
	t      *testing.T
	server *httptest.Server
	ca     *x509.Certificate
	key    *ecdsa.PrivateKey
	// requests counts certificate requests, connections the connections of clients.
	requests, connections atomic.Int32
	// firstExpires makes the first certificate expire soon, so that it must be renewed at once.
	firstExpires bool

	mu   sync.Mutex
	csrs []certificatesv1.CertificateSigningRequest
}

func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	api := &fakeAPI{t: t, key: key}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if api.ca, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	mux.HandleFunc("GET /api/v1/nodes/here", api.node)
	mux.HandleFunc("GET /api/v1/nodes/hanging", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("POST /apis/certificates.k8s.io/v1/certificatesigningrequests", api.sign)
	mux.HandleFunc("GET /apis/certificates.k8s.io/v1/certificatesigningrequests", api.list)
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", api.reviewToken)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", api.reviewAccess)
	api.server = httptest.NewUnstartedServer(mux)
	api.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	api.server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	api.server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			api.connections.Add(1)
		}
	}
	api.server.StartTLS()
	t.Cleanup(func() { api.server.CloseClientConnections(); api.server.Close() })
	return api
}

func (a *fakeAPI) client() clientset.Interface {
	a.t.Helper()
	client, err := clientset.NewForConfig(&rest.Config{
		Host: a.server.URL, TLSClientConfig: rest.TLSClientConfig{CAData: a.serverCA()},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return client
}

func (a *fakeAPI) serverCA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
}

// reviewToken accepts the tokens "reader" and "nobody".
func (a *fakeAPI) reviewToken(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	a.decode(r, &review)
	token := review.Spec.Token
	review.Status.Authenticated = token == "reader" || token == "nobody"
	review.Status.User.Username = token
	a.answer(w, review)
}

// reviewAccess allows reader to get metrics of this node.
func (a *fakeAPI) reviewAccess(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	a.decode(r, &review)
	asked := review.Spec.ResourceAttributes
	review.Status.Allowed = review.Spec.User == "reader" && asked.Verb == "get" && asked.Resource == "nodes" &&
		asked.Subresource == "metrics" && asked.Name == "here"
	a.answer(w, review)
}

// decode decodes JSON and protobuf.
func (a *fakeAPI) decode(r *http.Request, object runtime.Object) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, object)
	}
	if err != nil {
		a.t.Error(err)
	}
}

func (a *fakeAPI) node(w http.ResponseWriter, r *http.Request) {
	client := r.Header.Get("Authorization")
	serial := ""
	if certs := r.TLS.PeerCertificates; len(certs) > 0 {
		client, serial = certs[0].Subject.CommonName, certs[0].SerialNumber.String()
	}
	a.answer(w, &v1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: "here", Annotations: map[string]string{"client": client, "serial": serial}},
	})
}

func (a *fakeAPI) sign(w http.ResponseWriter, r *http.Request) {
	count := a.requests.Add(1)
	var csr certificatesv1.CertificateSigningRequest
	a.decode(r, &csr)
	a.checkRequester(r, count)
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		a.t.Error("no certificate request in it")
		return
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		a.t.Error(err)
		return
	}
	if got := strings.Join(request.Subject.Organization, ","); got != "system:nodes" {
		a.t.Errorf("certificate requested for organization %q", got)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(int64(count)), Subject: request.Subject,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore:   time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}
	if a.firstExpires && count == 1 {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Minute)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.ca, request.PublicKey, a.key)
	if err != nil {
		a.t.Error(err)
		return
	}
	csr.TypeMeta = metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"}
	csr.Name, csr.UID, csr.ResourceVersion = fmt.Sprintf("csr-%d", count), types.UID(fmt.Sprintf("uid-%d", count)), "1"
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue},
	}
	a.mu.Lock()
	a.csrs = append(a.csrs[:0], csr)
	a.mu.Unlock()
	a.answer(w, csr)
}

// checkRequester checks that the first request has the bootstrap token, and later ones the certificate that was issued.
func (a *fakeAPI) checkRequester(r *http.Request, count int32) {
	token, certs := r.Header.Get("Authorization"), r.TLS.PeerCertificates
	if count == 1 && token != "Bearer bootstrap" {
		a.t.Errorf("first certificate requested with %q", token)
	}
	if count > 1 && (token != "" || len(certs) == 0 || certs[0].Subject.CommonName != "system:node:here") {
		a.t.Errorf("certificate %d requested with token %q and %d certificates", count, token, len(certs))
	}
}

// list responds to lists; and to watches with the objects of the list, a bookmark, and nothing more.
func (a *fakeAPI) list(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if watch := r.URL.Query().Get("watch"); watch == "" || watch == "false" {
		a.answer(w, &certificatesv1.CertificateSigningRequestList{
			TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequestList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: a.csrs,
		})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for _, csr := range a.csrs {
		a.event(w, "ADDED", csr)
	}
	a.event(w, "BOOKMARK", certificatesv1.CertificateSigningRequest{
		TypeMeta: metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	})
}

func (a *fakeAPI) event(w http.ResponseWriter, kind string, csr certificatesv1.CertificateSigningRequest) {
	a.encode(w, map[string]any{"type": kind, "object": csr})
}

func (a *fakeAPI) answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	a.encode(w, object)
}

func (a *fakeAPI) encode(w http.ResponseWriter, object any) {
	if err := json.NewEncoder(w).Encode(object); err != nil {
		a.t.Error(err)
	}
}
