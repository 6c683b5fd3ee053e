package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/github.com/emicklei/go-restful/otelrestful"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/klog/v2"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
)

const (
	// idleTimeout is how long an unused connection stays open; equal to that of http.DefaultTransport.
	idleTimeout = 90 * time.Second
	// streamTimeout bounds streams, such as following a log.
	streamTimeout = 4 * time.Hour
	maxHeader     = 1 << 20 // bytes
	// drainTimeout is how long a stop waits for requests in progress. Streams never end by themselves.
	drainTimeout = 2 * time.Second
	// healthRetry is the time between two attempts to listen on the health port.
	healthRetry = 5 * time.Second
)

// serveHTTP serves until ctx ends, then waits up to drainTimeout for requests and aborts the rest. It closes listener.
func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler, config *tls.Config) error {
	server := &http.Server{
		Handler:        handler,
		TLSConfig:      config,
		IdleTimeout:    idleTimeout,
		ReadTimeout:    streamTimeout,
		WriteTimeout:   streamTimeout,
		MaxHeaderBytes: maxHeader,
	}
	failed := make(chan error, 1)
	go func() {
		if config != nil {
			failed <- server.ServeTLS(listener, "", "")
			return
		}
		failed <- server.Serve(listener)
	}()
	select {
	case err := <-failed:
		return errors.Join(err, listener.Close())
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if server.Shutdown(drain) != nil {
		_ = server.Close()
	}
	<-failed             //nolint:errcheck // it is http.ErrServerClosed
	_ = listener.Close() // the server may have ended before Serve was called
	return nil
}

// readOnly serves metrics, health and pods without authentication (--read-only-port, off by default).
func (s *Servers) readOnly(ctx context.Context) (*service, error) {
	cfg := s.cfg.Kubelet
	if cfg.ReadOnlyPort <= 0 {
		return nil, nil
	}
	handler := stockserver.NewServer(ctx, s.cfg.Host, s.cfg.Analyzer, s.cfg.Checkers, nil, nil, nil)
	handler.InstallTracingFilter(s.cfg.Tracer, otelrestful.WithPublicEndpoint())
	return listen(ctx, "read-only port", address(cfg.Address, cfg.ReadOnlyPort), &handler, nil)
}

// serveHealth serves /healthz on the health port, without further checks, until ctx ends.
func (s *Servers) serveHealth(ctx context.Context) error {
	mux := http.NewServeMux()
	healthz.InstallHandler(mux)
	bind := address(s.cfg.Kubelet.HealthzBindAddress, s.cfg.Kubelet.HealthzPort)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		svc, err := listen(ctx, "health port", bind, mux, nil)
		if err == nil {
			err = svc.serve(ctx)
		}
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Failed to start healthz server")
		}
	}, healthRetry)
	return nil
}
