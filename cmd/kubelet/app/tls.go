package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/cli/flag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/server"
)

// makeTLS sets the TLS options of the secure port: versions, ciphers, curves and files.
func (p *process) makeTLS(ctx context.Context) error {
	config := p.settings.Config
	if !config.ServerTLSBootstrap && config.TLSCertFile == "" && config.TLSPrivateKeyFile == "" {
		config.TLSCertFile = filepath.Join(p.settings.Flags.CertDirectory, "kubelet.crt")
		config.TLSPrivateKeyFile = filepath.Join(p.settings.Flags.CertDirectory, "kubelet.key")
		if err := ensureSelfSigned(ctx, config.TLSCertFile, config.TLSPrivateKeyFile, p.deps.Identity.Hostname); err != nil {
			return err
		}
	}
	options := &server.TLSOptions{
		CertFile:     config.TLSCertFile,
		KeyFile:      config.TLSPrivateKeyFile,
		ClientCAFile: config.Authentication.X509.ClientCAFile,
	}
	var err error
	if options.MinVersion, err = flag.TLSVersion(config.TLSMinVersion); err != nil {
		return fmt.Errorf("tlsMinVersion (--tls-min-version): %w", err)
	}
	if options.CipherSuites, err = flag.TLSCipherSuites(config.TLSCipherSuites); err != nil {
		return fmt.Errorf("tlsCipherSuites (--tls-cipher-suites): %w", err)
	}
	if options.CurvePreferences, err = flag.TLSCurvePreferences(config.TLSCurvePreferences); err != nil {
		return fmt.Errorf("tlsCurvePreferences (--tls-curve-preferences): %w", err)
	}
	warnAboutCiphers(klog.FromContext(ctx), options)
	p.deps.Serving.TLSOptions = options
	return nil
}

// ensureSelfSigned creates a self-signed certificate, unless there is one of an earlier start, which clients may have
// pinned.
func ensureSelfSigned(ctx context.Context, certFile, keyFile, hostname string) error {
	usable, err := certutil.CanReadCertAndKey(certFile, keyFile)
	if err != nil {
		return fmt.Errorf("--cert-dir %q: %w", filepath.Dir(certFile), err)
	}
	if usable {
		return nil
	}
	cert, key, err := certutil.GenerateSelfSignedCertKey(hostname, nil, nil)
	if err != nil {
		return fmt.Errorf("unable to generate self signed cert: %w", err)
	}
	if err := certutil.WriteCert(certFile, cert); err != nil {
		return fmt.Errorf("--cert-dir %q: %w", filepath.Dir(certFile), err)
	}
	if err := keyutil.WriteKey(keyFile, key); err != nil {
		return fmt.Errorf("--cert-dir %q: %w", filepath.Dir(keyFile), err)
	}
	klog.FromContext(ctx).V(4).Info("Using self-signed cert", "TLSCertFile", certFile, "TLSPrivateKeyFile", keyFile)
	return nil
}

func warnAboutCiphers(logger klog.Logger, options *server.TLSOptions) {
	insecure := flag.InsecureTLSCiphers()
	for _, name := range slices.Sorted(maps.Keys(insecure)) {
		if slices.Contains(options.CipherSuites, insecure[name]) {
			logger.Info("Use of insecure cipher detected", "cipher", name)
		}
	}
	if options.MinVersion == tls.VersionTLS13 && len(options.CipherSuites) > 0 {
		logger.Info("Warning: TLS 1.3 cipher suites are not configurable, ignoring --tls-cipher-suites")
	}
}
