package pki

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"
	"time"
)

func parse(t *testing.T, pair Pair) *x509.Certificate {
	t.Helper()
	if _, err := tls.X509KeyPair(pair.Cert, pair.Key); err != nil {
		t.Fatalf("certificate and key do not belong together: %v", err)
	}
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestIssuedCertificateIsTrustedForServerAndClient(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	authority, err := NewAuthority("test", now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.Issue(Request{
		CommonName:    "system:node:a",
		Organizations: []string{"system:nodes"},
		DNSNames:      []string{"a"},
		IPs:           []net.IP{net.IPv4(10, 0, 0, 1)},
	})
	if err != nil {
		t.Fatal(err)
	}
	cert := parse(t, pair)
	roots := x509.NewCertPool()
	roots.AddCert(parse(t, authority.Pair()))
	for _, name := range []string{"a", "10.0.0.1"} {
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			_, err := cert.Verify(x509.VerifyOptions{
				DNSName: name, Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
			})
			if err != nil {
				t.Errorf("verify for %q, usage %v: %v", name, usage, err)
			}
		}
	}
	if got := cert.Subject.Organization; len(got) != 1 || got[0] != "system:nodes" {
		t.Errorf("organizations = %v", got)
	}
}

func TestSigningKeyHoldsAPublicKey(t *testing.T) {
	pair, err := NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	if _, err := x509.ParsePKIXPublicKey(block.Bytes); err != nil {
		t.Error(err)
	}
}
