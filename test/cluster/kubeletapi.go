package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"
)

// requestTimeout bounds one request to the kubelet.
const requestTimeout = 30 * time.Second

// KubeletGet is KubeletRequest with method GET.
func (c *Cluster) KubeletGet(ctx context.Context, path string, trusted bool) (code int, body []byte, err error) {
	return c.KubeletRequest(ctx, http.MethodGet, path, trusted)
}

// KubeletRequest sends a request to the kubelet, without the API server in between. A client that is not trusted has no
// certificate. Code and body are those of the response, whatever the code is.
func (c *Cluster) KubeletRequest(
	ctx context.Context, method, path string, trusted bool,
) (code int, body []byte, err error) {
	config, err := c.clientTLS(trusted)
	if err != nil {
		return 0, nil, err
	}
	transport := &http.Transport{TLSClientConfig: config, DialContext: c.config.dial()}
	defer transport.CloseIdleConnections()
	address := net.JoinHostPort(c.machine.nodeIP.String(), strconv.Itoa(c.config.kubeletPort()))
	request, err := http.NewRequestWithContext(ctx, method, "https://"+address+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("request to the kubelet: %w", err)
	}
	response, err := (&http.Client{Transport: transport, Timeout: requestTimeout}).Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("request to the kubelet: %w", err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, fmt.Errorf("read the kubelet's response: %w", err)
	}
	return response.StatusCode, body, nil
}

func (c *Cluster) clientTLS(trusted bool) (*tls.Config, error) {
	layout := c.config.Layout
	ca, err := os.ReadFile(layout.pki("ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("the cluster's authority holds no certificate")
	}
	config := &tls.Config{RootCAs: roots}
	if !trusted {
		return config, nil
	}
	pair, err := tls.LoadX509KeyPair(layout.pki(userAdmin+".crt"), layout.pki(userAdmin+".key"))
	if err != nil {
		return nil, fmt.Errorf("read administrator's certificate: %w", err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
