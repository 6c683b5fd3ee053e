package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// runCertificates runs certificates until the test ends.
func runCertificates(t *testing.T, certificates *Certificates) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { certificates.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// replace replaces the files of one certificate by those of another, as a tool that renews certificates does.
func replace(t *testing.T, old, by *stockserver.TLSOptions) {
	t.Helper()
	if err := errors.Join(os.Rename(by.CertFile, old.CertFile), os.Rename(by.KeyFile, old.KeyFile)); err != nil {
		t.Fatal(err)
	}
}

func leafOf(t *testing.T, file string) []byte {
	t.Helper()
	certs, err := certutil.CertsFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0].Raw
}

// A serving certificate that is replaced on disk is served without a restart, if the gate is on. An invalid one changes
// nothing.
func TestServingCertificateIsReloaded(t *testing.T) {
	options, renewed := selfSigned(t), selfSigned(t)
	first, second := leafOf(t, options.CertFile), leafOf(t, renewed.CertFile)
	reloading, err := NewCertificates(CertificatesConfig{Options: options, ReloadFiles: true})
	if err != nil {
		t.Fatal(err)
	}
	fixed, err := NewCertificates(CertificatesConfig{Options: options})
	if err != nil {
		t.Fatal(err)
	}
	runCertificates(t, reloading)
	runCertificates(t, fixed)
	served := func(c *Certificates) []byte {
		cert, err := c.TLS().GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return cert.Certificate[0]
	}
	replace(t, options, renewed)
	await.Until(t, "new serving certificate", func() error {
		if !bytes.Equal(served(reloading), second) {
			return errors.New("the old one is served")
		}
		return nil
	})
	if !bytes.Equal(served(fixed), first) {
		t.Error("reloaded although the gate is off")
	}
	if err := os.WriteFile(options.CertFile, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(served(reloading), second) {
		t.Error("an invalid file removed the certificate")
	}
}

// clientAuth authenticates clients with a certificate of bundle.
func clientAuth(bundle *dynamiccertificates.DynamicFileCAContent) stockserver.AuthInterface {
	certificates := x509request.NewDynamic(bundle.VerifyOptions, x509request.CommonNameUserConversion)
	allow := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	return stockserver.NewKubeletAuth(authenticator.Request(certificates),
		stockserver.NewNodeAuthorizerAttributesGetter("n"), allow, bundle)
}

// clientCertificate is a self-signed key pair and its file.
func clientCertificate(t *testing.T) (pair tls.Certificate, file string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "client"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}

// A client CA bundle that is replaced on disk is used without a restart: a client of the new authority is
// authenticated, one of the old authority is not.
func TestClientCAIsReloaded(t *testing.T) {
	cfg := testServers(t)
	cfg.Kubelet.ReadOnlyPort, cfg.Kubelet.HealthzPort = 0, 0
	options := selfSigned(t)
	_, options.ClientCAFile = clientCertificate(t)
	newcomer, newBundle := clientCertificate(t)
	bundle, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", options.ClientCAFile)
	if err != nil {
		t.Fatal(err)
	}
	go bundle.Run(t.Context(), 1)
	cfg.Auth = clientAuth(bundle)
	certificates, err := NewCertificates(CertificatesConfig{
		Options: options, Kubelet: cfg.Kubelet, ReloadFiles: true, ReloadClientCA: true, ClientCA: cfg.Auth,
	})
	if err != nil {
		t.Fatal(err)
	}
	runCertificates(t, certificates)
	cfg.TLS = certificates.TLS()
	stop := run(t, NewServers(cfg))
	defer func() {
		if err := stop(); err != nil {
			t.Errorf("the servers ended with %v", err)
		}
	}()

	ask := func() (int, error) {
		return getWith(t, options.CertFile, "https://"+at(cfg.Kubelet.Port, "/pods"), newcomer)
	}
	await.Until(t, "an answer", func() error {
		code, err := ask()
		if err == nil && code != http.StatusUnauthorized {
			t.Errorf("an unknown client gets %d", code)
		}
		return err
	})
	if err := os.Rename(newBundle, options.ClientCAFile); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "new client CA", func() error {
		code, err := ask()
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("the client of the new authority gets %d", code)
		}
		return err
	})
}

// getWith sends one request on a new connection.
func getWith(t *testing.T, serverCA, url string, client tls.Certificate) (int, error) {
	t.Helper()
	pool, err := certutil.NewPool(serverCA)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool,
		// Send the certificate even if the server does not list its authority.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &client, nil }}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// parseCertificate parses one certificate in PEM.
func parseCertificate(t *testing.T, pem []byte) *x509.Certificate {
	t.Helper()
	certs, err := certutil.ParseCertsPEM(pem)
	if err != nil {
		t.Fatal(err)
	}
	return certs[0]
}

var loopback = net.IPv4(127, 0, 0, 1)
