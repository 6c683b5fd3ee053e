package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	clientset "k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	kubeletcertificate "k8s.io/kubernetes/pkg/kubelet/certificate"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
)

// CertificatesConfig has the sources of the serving certificate and of the client CA bundle.
type CertificatesConfig struct {
	Options *stockserver.TLSOptions
	Kubelet *kubeletconfig.KubeletConfiguration
	// RequestFromAPI requests a serving certificate from the API server and rotates it (serverTLSBootstrap).
	RequestFromAPI bool
	// ReloadFiles reloads changed certificate files, ReloadClientCA a changed client CA bundle.
	ReloadFiles, ReloadClientCA bool
	// ClientCA provides the client CA bundle; the authenticator updates it.
	ClientCA dynamiccertificates.CAContentProvider
	// The rest is for RequestFromAPI only: the certificate is for the node and its addresses, and is stored in Directory.
	Client    clientset.Interface
	NodeName  types.NodeName
	Addresses func() []v1.NodeAddress
	Directory string
}

// Certificates provides the TLS configuration of the secure port. Run updates it.
type Certificates struct {
	tls     *tls.Config
	manager certificate.Manager
	clients *dynamiccertificates.DynamicServingCertificateController
}

// NewCertificates reads the files once and starts nothing. With RequestFromAPI it may be called once in a process,
// because the certificate manager registers metrics.
func NewCertificates(cfg CertificatesConfig) (*Certificates, error) {
	c := &Certificates{tls: &tls.Config{
		MinVersion:       cfg.Options.MinVersion,
		CipherSuites:     cfg.Options.CipherSuites,
		CurvePreferences: cfg.Options.CurvePreferences,
	}}
	current, err := c.servingCertificate(cfg)
	if err != nil {
		return nil, err
	}
	c.tls.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if cert := current(); cert != nil {
			return cert, nil
		}
		return nil, errors.New("no serving certificate available for the kubelet")
	}
	if err := c.requestClientCertificates(cfg); err != nil {
		return nil, fmt.Errorf("unable to load client CA file %s: %w", cfg.Options.ClientCAFile, err)
	}
	return c, nil
}

// TLS returns the configuration for the listener. It is updated only while Run runs.
func (c *Certificates) TLS() *tls.Config { return c.tls }

// Run updates the certificates until ctx ends.
func (c *Certificates) Run(ctx context.Context) {
	if c.manager != nil {
		c.manager.Start()
		defer c.manager.Stop()
	}
	if c.clients != nil {
		c.clients.Run(1, ctx.Done())
	}
	<-ctx.Done()
}

// servingCertificate returns a function that returns the current serving certificate, nil while there is none.
func (c *Certificates) servingCertificate(cfg CertificatesConfig) (func() *tls.Certificate, error) {
	var err error
	files := cfg.Options.CertFile != "" && cfg.Options.KeyFile != ""
	switch {
	case cfg.RequestFromAPI:
		c.manager, err = kubeletcertificate.NewKubeletServerCertificateManager(cfg.Client, cfg.Kubelet, cfg.NodeName,
			cfg.Addresses, cfg.Directory)
		if err != nil {
			return nil, fmt.Errorf("failed to initialize certificate manager: %w", err)
		}
		return c.manager.Current, nil
	case files && cfg.ReloadFiles:
		c.manager, err = kubeletcertificate.NewKubeletServerCertificateDynamicFileManager(cfg.Options.CertFile,
			cfg.Options.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("failed to initialize file based certificate manager: %w", err)
		}
		return c.manager.Current, nil
	case files:
		pair, err := tls.LoadX509KeyPair(cfg.Options.CertFile, cfg.Options.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("failed to load certificate: %w", err)
		}
		return func() *tls.Certificate { return &pair }, nil
	default:
		return func() *tls.Certificate { return nil }, nil
	}
}

// requestClientCertificates makes the server request, but not require, a certificate from clients. The authenticator
// verifies it.
func (c *Certificates) requestClientCertificates(cfg CertificatesConfig) error {
	if cfg.Options.ClientCAFile == "" {
		return nil
	}
	c.tls.ClientAuth = tls.RequestClientCert
	if !cfg.ReloadClientCA {
		pool, err := certutil.NewPool(cfg.Options.ClientCAFile)
		c.tls.ClientCAs = pool
		return err
	}
	c.clients = dynamiccertificates.NewDynamicServingCertificateController(c.tls.Clone(), cfg.ClientCA, nil, nil, nil)
	if err := c.clients.RunOnce(); err != nil {
		return err
	}
	c.tls.GetConfigForClient = c.clients.GetConfigForClient
	return nil
}
