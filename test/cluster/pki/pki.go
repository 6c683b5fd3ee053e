// Package pki creates the certificates of one development cluster: an authority and the pairs that it signs. It writes
// no files.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// lifetime of all certificates. A cluster's certificates are created at every start.
const lifetime = 365 * 24 * time.Hour

// skew is how far in the past certificates become valid, in case the clock is set back.
const skew = 5 * time.Minute

// Pair is a certificate and its private key, both PEM encoded.
type Pair struct {
	Cert []byte
	Key  []byte
}

// Authority signs certificates for servers and clients of one cluster.
type Authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
	keyPEM  []byte
	now     time.Time
}

// Request describes the subject of a certificate. It is valid for a server (under DNSNames and IPs) and for a client
// (as CommonName in Organizations).
type Request struct {
	CommonName    string
	Organizations []string
	DNSNames      []string
	IPs           []net.IP
}

// NewAuthority creates an authority whose certificates are valid from now on.
func NewAuthority(name string, now time.Time) (*Authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(pkix.Name{CommonName: name}, now)
	if err != nil {
		return nil, err
	}
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign authority %q: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("parse authority %q: %w", name, err)
	}
	return &Authority{cert: cert, key: key, certPEM: encodeCert(der), keyPEM: keyPEM, now: now}, nil
}

// Pair returns the authority's own certificate and key.
func (a *Authority) Pair() Pair { return Pair{Cert: a.certPEM, Key: a.keyPEM} }

// Issue signs a new certificate.
func (a *Authority) Issue(req Request) (Pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	template, err := newTemplate(pkix.Name{CommonName: req.CommonName, Organization: req.Organizations}, a.now)
	if err != nil {
		return Pair{}, err
	}
	template.DNSNames = req.DNSNames
	template.IPAddresses = req.IPs
	template.KeyUsage = x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate of %q: %w", req.CommonName, err)
	}
	return Pair{Cert: encodeCert(der), Key: keyPEM}, nil
}

// NewSigningKey creates the key pair with which service account tokens are signed and verified. Cert holds the public
// key.
func NewSigningKey() (Pair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return Pair{}, fmt.Errorf("encode public key: %w", err)
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), Key: keyPEM}, nil
}

func newTemplate(subject pkix.Name, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("draw serial number: %w", err)
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(lifetime),
	}, nil
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key: %w", err)
	}
	var private crypto.PrivateKey = key
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encode key: %w", err)
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
