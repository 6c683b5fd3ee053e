package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// errNoPage: the node does not have the page, as with a stock kubelet.
var errNoPage = errors.New("the kubelet of the node has no decision log: it is stock, or older")

// errStockDirect: a stock kubelet guards all of these pages as nodes/proxy, those that it does not have included.
var errStockDirect = fmt.Errorf("%w: with --direct it can be asked nothing, since it guards its pages as nodes/proxy, "+
	"which the ServiceAccount of --reader does not have", errNoPage)

// forbiddenAsProxy is in the response of a kubelet that has no such page. One that has it names nodes/pods.
const forbiddenAsProxy = "subresource(s)=[proxy]"

const (
	// maxPage bounds a page, in bytes. Traces and watches are not held in memory.
	maxPage = 64 << 20
	// tokenSeconds is how long a token is valid, the shortest time that the API server accepts.
	tokenSeconds = 600
	// askTimeout is for one page of one node.
	askTimeout = 30 * time.Second
	// atOnce is how many nodes are asked at a time.
	atOnce = 16
)

// nodeInfo is what is known of a node from the API server.
type nodeInfo = v1.Node

// directOptions are the flags of --direct.
type directOptions struct {
	enabled        bool
	serviceAccount string
	ca             string
	addressType    string
}

func (d *directOptions) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&d.enabled, "direct", false, "Ask the port of the node itself, with a token of --reader, "+
		"instead of going through the API server.")
	f.StringVar(&d.serviceAccount, "reader", "plimsoll-system/pressure-reader", "With --direct: the namespace and name "+
		"of the ServiceAccount whose token nodes get.")
	f.StringVar(&d.ca, "kubelet-ca", "", "With --direct: a file with the certificate authorities of the certificates "+
		"of kubelets. The default are those of the API server.")
	f.StringVar(&d.addressType, "address-type", string(v1.NodeInternalIP), "With --direct: which address of the Node is "+
		"used.")
}

// connect returns the cluster of the flags.
func connect(o *options) (*cluster, error) {
	config, err := o.config.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &cluster{Interface: client, ask: proxy{client.CoreV1().RESTClient()}}
	if o.direct.enabled {
		c.ask, err = newDirect(client, config, &o.direct)
	}
	return c, err
}

// nodes returns one node, or all without a name.
func (c *cluster) nodes(ctx context.Context, name string) ([]nodeInfo, error) {
	if name != "" {
		node, err := c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return []nodeInfo{*node}, nil
	}
	list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// page decodes a page of a node.
func (c *cluster) page(ctx context.Context, n *nodeInfo, page string, parameters map[string]string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := fetch(into)(c.ask.open(ctx, n, page, parameters)); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	return nil
}

// fetch returns a function that decodes the body of a response, JSON within a bound, and closes it.
func fetch(into any) func(io.ReadCloser, error) error {
	return func(body io.ReadCloser, err error) error {
		if err != nil {
			return err
		}
		defer body.Close()
		text, err := io.ReadAll(io.LimitReader(body, maxPage+1))
		switch {
		case err != nil:
			return err
		case len(text) > maxPage:
			return fmt.Errorf("the page has more than %d bytes", maxPage)
		}
		return json.Unmarshal(text, into)
	}
}

// each calls f for each node, several at a time.
func each(nodes []nodeInfo, f func(i int, n *nodeInfo)) {
	var work sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i := range nodes {
		slots <- struct{}{}
		work.Go(func() {
			defer func() { <-slots }()
			f(i, &nodes[i])
		})
	}
	work.Wait()
}

// proxy asks through the API server.
type proxy struct{ rest.Interface }

func (p proxy) open(
	ctx context.Context, n *nodeInfo, page string, parameters map[string]string,
) (io.ReadCloser, error) {
	r := p.Get().Resource("nodes").Name(n.Name).SubResource("proxy").Suffix("debug", "pressure", page)
	for name, value := range parameters {
		r = r.Param(name, value)
	}
	body, err := r.Stream(ctx)
	if apierrors.IsNotFound(err) && !strings.HasPrefix(page, "decisions/") {
		return nil, errNoPage
	}
	return body, err
}

// direct asks the port of nodes, with a token of a ServiceAccount that may read nodes/pods only.
type direct struct {
	client         kubernetes.Interface
	http           *http.Client
	namespace      string
	serviceAccount string
	addressType    v1.NodeAddressType

	mu      sync.Mutex
	token   string
	expires time.Time
}

func newDirect(client kubernetes.Interface, config *rest.Config, o *directOptions) (*direct, error) {
	namespace, name, ok := strings.Cut(o.serviceAccount, "/")
	if !ok || namespace == "" || name == "" {
		return nil, fmt.Errorf("--reader %q: must be a namespace, a slash and a name", o.serviceAccount)
	}
	authorities := config.CAData
	file := config.CAFile
	if o.ca != "" {
		authorities, file = nil, o.ca
	}
	if len(authorities) == 0 && file != "" {
		var err error
		if authorities, err = os.ReadFile(file); err != nil {
			return nil, err
		}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, errors.New("no certificate authority to verify nodes with: name a file with --kubelet-ca")
	}
	return &direct{
		client: client, namespace: namespace, serviceAccount: name, addressType: v1.NodeAddressType(o.addressType),
		http: &http.Client{
			// Nothing of the user's own configuration: no certificate, no token, no proxy that would see the token.
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
			// The token is for the node, and not for where the node points to.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// bearer returns a token, a new one shortly before the last one expires.
func (d *direct) bearer(ctx context.Context) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.token != "" && time.Until(d.expires) > time.Minute {
		return d.token, nil
	}
	seconds := int64(tokenSeconds)
	request, err := d.client.CoreV1().ServiceAccounts(d.namespace).CreateToken(ctx, d.serviceAccount,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("a token of the ServiceAccount %s/%s: %w", d.namespace, d.serviceAccount, err)
	}
	d.token, d.expires = request.Status.Token, request.Status.ExpirationTimestamp.Time
	return d.token, nil
}

func (d *direct) open(
	ctx context.Context, n *nodeInfo, page string, parameters map[string]string,
) (io.ReadCloser, error) {
	host, err := d.hostOf(n)
	if err != nil {
		return nil, err
	}
	token, err := d.bearer(ctx)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, value := range parameters {
		query.Set(name, value)
	}
	u := url.URL{Scheme: "https", Host: host, Path: path.Join("/debug/pressure", page), RawQuery: query.Encode()}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := d.http.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10))
	if response.StatusCode == http.StatusNotFound {
		if number, ok := strings.CutPrefix(page, "decisions/"); ok {
			return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "decisions"}, number)
		}
		return nil, errNoPage
	}
	if response.StatusCode == http.StatusForbidden && bytes.Contains(text, []byte(forbiddenAsProxy)) {
		return nil, errStockDirect
	}
	return nil, fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(text)))
}

func (d *direct) hostOf(n *nodeInfo) (string, error) {
	port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
	for _, a := range n.Status.Addresses {
		if a.Type == d.addressType && port > 0 {
			return net.JoinHostPort(a.Address, strconv.Itoa(int(port))), nil
		}
	}
	return "", fmt.Errorf("the Node has no address of the type %s, or no port of the kubelet", d.addressType)
}
