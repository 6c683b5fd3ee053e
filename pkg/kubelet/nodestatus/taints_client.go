package nodestatus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes/scheme"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// taintCallTimeout limits one call of the API server.
	taintCallTimeout = 10 * time.Second
	// taintFieldManager is the owner of the taints in the Node's managedFields.
	taintFieldManager = "plimsoll-node-taints"
	// maxKubeconfigFile is the greatest size of a kubeconfig file, and of each file that it refers to.
	maxKubeconfigFile = 1 << 20
)

var (
	// errNoKubeconfig: the configuration names no kubeconfig file.
	errNoKubeconfig = errors.New("plugins.eviction.taints.kubeconfig is not set")
	// errProgram: a program would run as the user of the kubelet, without a limit of its time.
	errProgram = errors.New("must not have exec or auth-provider: must have a client certificate, token or tokenFile")
	// errNotRegular: the file is one that is not read.
	errNotRegular = fmt.Errorf("must be a regular file of at most %d bytes", maxKubeconfigFile)
)

// taintAPI reads and patches the Node with the identity for taints. Neither method repeats a request.
type taintAPI interface {
	read(ctx context.Context) (*v1.Node, error)
	// patch sends a JSON merge patch.
	patch(ctx context.Context, body []byte) (*v1.Node, error)
}

// taintClients returns the client for a kubeconfig file.
type taintClients interface {
	// client returns errNoKubeconfig if path is empty.
	client(path string) (taintAPI, error)
	// differ reports whether the file, or a file that it refers to, has changed since the last call of client, in
	// particular after an error.
	differ(path string) bool
}

// kubeconfigClients is the taintClients of real files. It reads them before each request, since nothing is sent most of
// the time, and so that a credential that was rotated is used at once.
type kubeconfigClients struct {
	node types.NodeName
	// path and content are those of the last call of client. The content has certificates and keys inline; if the file
	// could not be read, it is the error.
	path    string
	content []byte
	api     *restTaints
}

func (c *kubeconfigClients) differ(path string) bool {
	_, content, _ := loadKubeconfig(path)
	return path != c.path || !bytes.Equal(content, c.content)
}

func (c *kubeconfigClients) client(path string) (taintAPI, error) {
	config, content, err := loadKubeconfig(path)
	if err == nil && c.api != nil && bytes.Equal(content, c.content) {
		c.path = path
		return c.api, nil
	}
	c.path, c.content = path, content
	if c.api != nil {
		utilnet.CloseIdleConnectionsFor(c.api.transport)
		c.api = nil
	}
	if err != nil {
		return nil, err
	}
	if c.api, err = newRESTTaints(config, c.node); err != nil {
		return nil, fmt.Errorf("kubeconfig file %s: %w", path, err)
	}
	return c.api, nil
}

// loadKubeconfig returns the current context of a file with the certificates and keys that it refers to, and the same
// as bytes; after an error the bytes of its text.
func loadKubeconfig(path string) (*clientcmdapi.Config, []byte, error) {
	if path == "" {
		return nil, nil, errNoKubeconfig
	}
	config, content, err := flatKubeconfig(path)
	if err != nil {
		err = fmt.Errorf("kubeconfig file %s: %w", path, err)
		return nil, []byte(err.Error()), err
	}
	return config, content, nil
}

func flatKubeconfig(path string) (*clientcmdapi.Config, []byte, error) {
	if err := checkRegular(path); err != nil {
		return nil, nil, err
	}
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, nil, err
	}
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		return nil, nil, err
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, nil, err
	}
	if err := checkKubeconfig(config); err != nil {
		return nil, nil, err
	}
	// With the names of files client-go would read them again in goroutines that never end.
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return nil, nil, err
	}
	content, err := clientcmd.Write(*config)
	return config, content, err
}

// checkKubeconfig rejects what would make reading credentials run a program, or take any time or memory.
func checkKubeconfig(config *clientcmdapi.Config) error {
	var files []string
	for name, user := range config.AuthInfos {
		if user.Exec != nil || user.AuthProvider != nil {
			return fmt.Errorf("user %s: %w", name, errProgram)
		}
		files = append(files, user.ClientCertificate, user.ClientKey, user.TokenFile)
	}
	for _, cluster := range config.Clusters {
		files = append(files, cluster.CertificateAuthority)
	}
	for _, file := range files {
		if file == "" {
			continue
		}
		if err := checkRegular(file); err != nil {
			return err
		}
	}
	return nil
}

// checkRegular rejects files that are too large or not regular: they may have no end, or wait for a writer.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Size() > maxKubeconfigFile {
		return fmt.Errorf("%s: %w, not %d bytes of %s", path, errNotRegular, info.Size(), info.Mode())
	}
	return nil
}

// restTaints is the taintAPI of an API server.
type restTaints struct {
	node      types.NodeName
	client    rest.Interface
	transport http.RoundTripper
}

// newRESTTaints returns a client with connections of its own. The shared transports of client-go would be kept for each
// credential that was ever used.
func newRESTTaints(kubeconfig *clientcmdapi.Config, node types.NodeName) (*restTaints, error) {
	config, err := clientcmd.NewDefaultClientConfig(*kubeconfig, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	// There is no limit on the client's side: the writer sends a few requests a second at most.
	config.QPS, config.Timeout = -1, taintCallTimeout
	config.UserAgent = rest.DefaultKubernetesUserAgent() + "/node-taints"
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{
		Proxy: config.Proxy, TLSClientConfig: tlsConfig, DialContext: config.Dial, IdleConnTimeout: time.Minute,
	})
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, err
	}
	client, err := v1core.NewForConfigAndClient(config, &http.Client{Transport: wrapped, Timeout: taintCallTimeout})
	if err != nil {
		return nil, err
	}
	return &restTaints{node: node, client: client.RESTClient(), transport: transport}, nil
}

func (r *restTaints) read(ctx context.Context) (*v1.Node, error) {
	return r.send(ctx, r.client.Get())
}

func (r *restTaints) patch(ctx context.Context, body []byte) (*v1.Node, error) {
	options := metav1.PatchOptions{FieldManager: taintFieldManager}
	return r.send(ctx, r.client.Patch(types.MergePatchType).VersionedParams(&options, scheme.ParameterCodec).Body(body))
}

// send sends a request once: client-go repeats it when the answer has a Retry-After, within one call.
func (r *restTaints) send(ctx context.Context, request *rest.Request) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, taintCallTimeout)
	defer cancel()
	node := &v1.Node{}
	if err := request.Resource("nodes").Name(string(r.node)).MaxRetries(0).Do(ctx).Into(node); err != nil {
		return nil, err
	}
	return node, nil
}
