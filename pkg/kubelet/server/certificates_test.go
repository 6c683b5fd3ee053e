package server

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

func TestCertificatesFromFiles(t *testing.T) {
	for _, reload := range []bool{false, true} {
		options := selfSigned(t)
		options.MinVersion = tls.VersionTLS13
		certificates, err := NewCertificates(CertificatesConfig{Options: options, ReloadFiles: reload})
		if err != nil {
			t.Fatal(err)
		}
		config := certificates.TLS()
		if cert, err := config.GetCertificate(nil); err != nil || cert == nil {
			t.Errorf("reload %v: no certificate: %v", reload, err)
		}
		if config.MinVersion != tls.VersionTLS13 || config.ClientAuth != tls.NoClientCert {
			t.Errorf("reload %v: version %x, client authentication %v", reload, config.MinVersion, config.ClientAuth)
		}
	}
}

func TestMissingCertificates(t *testing.T) {
	options := selfSigned(t)
	if err := os.Remove(options.KeyFile); err != nil {
		t.Fatal(err)
	}
	for _, reload := range []bool{false, true} {
		if _, err := NewCertificates(CertificatesConfig{Options: options, ReloadFiles: reload}); err == nil ||
			!strings.Contains(err.Error(), options.KeyFile) {
			t.Errorf("reload %v: got %v, want the name of the missing file", reload, err)
		}
	}
	options.CertFile, options.KeyFile = "", ""
	certificates, err := NewCertificates(CertificatesConfig{Options: options})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := certificates.TLS().GetCertificate(nil); err == nil {
		t.Error("a certificate out of nothing")
	}
}

// The server requests a client certificate and does not require it. The bundle is read at once, so that an invalid one
// is found at start.
func TestClientCA(t *testing.T) {
	options := selfSigned(t)
	options.ClientCAFile = options.CertFile
	bundle, err := dynamiccertificates.NewDynamicCAContentFromFile("test", options.ClientCAFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, reload := range []bool{false, true} {
		certificates, err := NewCertificates(CertificatesConfig{Options: options, ReloadClientCA: reload, ClientCA: bundle})
		if err != nil {
			t.Fatal(err)
		}
		config := certificates.TLS()
		if reload {
			if config, err = config.GetConfigForClient(&tls.ClientHelloInfo{ServerName: "node"}); err != nil {
				t.Fatal(err)
			}
		}
		if config.ClientAuth != tls.RequestClientCert || config.ClientCAs == nil {
			t.Errorf("reload %v: client authentication %v, authorities %v", reload, config.ClientAuth, config.ClientCAs)
		}
		if _, err := config.GetCertificate(nil); err != nil {
			t.Errorf("reload %v: serving certificate lost: %v", reload, err)
		}
	}
	options.ClientCAFile = "/no/such/ca"
	if _, err := NewCertificates(CertificatesConfig{Options: options}); err == nil ||
		!strings.Contains(err.Error(), "/no/such/ca") {
		t.Errorf("got %v, want the name of the missing file", err)
	}
}

func TestCertificatesRunEnds(t *testing.T) {
	options := selfSigned(t)
	options.ClientCAFile = options.CertFile
	bundle, err := dynamiccertificates.NewDynamicCAContentFromFile("test", options.ClientCAFile)
	if err != nil {
		t.Fatal(err)
	}
	certificates, err := NewCertificates(CertificatesConfig{
		Options: options, ReloadFiles: true, ReloadClientCA: true, ClientCA: bundle,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { certificates.Run(ctx); close(ended) }()
	cancel()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("still running")
	}
}
