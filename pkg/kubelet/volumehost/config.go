package volumehost

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/paths"
)

// Nodes returns the Node of this agent.
type Nodes interface {
	Name() types.NodeName
	// Lookup returns the Node in the API server. It fails if the Node has not been received yet.
	Lookup(ctx context.Context) (*v1.Node, error)
	// Node returns the Node as Lookup does, or if that fails the Node that the agent would register.
	Node(ctx context.Context) (*v1.Node, error)
}

// Secrets returns secrets of registered pods.
type Secrets interface {
	GetSecret(namespace, name string) (*v1.Secret, error)
}

// ConfigMaps returns config maps of registered pods.
type ConfigMaps interface {
	GetConfigMap(namespace, name string) (*v1.ConfigMap, error)
}

// Tokens requests service account tokens and caches them until they need a refresh.
type Tokens interface {
	GetServiceAccountToken(
		namespace, name string, tr *authenticationv1.TokenRequest,
	) (*authenticationv1.TokenRequest, error)
	DeleteServiceAccountToken(podUID types.UID)
}

// TrustBundles returns the content of ClusterTrustBundles (KEP-3257).
type TrustBundles interface {
	GetTrustAnchorsByName(name string, allowMissing bool) ([]byte, error)
	GetTrustAnchorsBySigner(signer string, selector *metav1.LabelSelector, allowMissing bool) ([]byte, error)
}

// PodCertificates returns key and chain of certificates that were issued for pods (KEP-4317).
type PodCertificates interface {
	GetPodCertificateCredentialBundle(
		ctx context.Context, namespace, podName, podUID, volumeName string, sourceIndex int,
	) ([]byte, []byte, error)
}

// Objects are the sources of the content of volumes.
type Objects struct {
	// Secrets and ConfigMaps are nil in standalone mode, in which such volumes fail with an error.
	Secrets         Secrets
	ConfigMaps      ConfigMaps
	Tokens          Tokens
	TrustBundles    TrustBundles
	PodCertificates PodCertificates
}

// Mounts are the tools that act on the host's mount table.
type Mounts struct {
	Mounter   mount.Interface
	HostUtil  hostutil.HostUtils
	Subpather subpath.Interface
}

// Config is the configuration of a Host. All fields are required unless noted otherwise.
type Config struct {
	Layout paths.Layout
	// Client is nil in standalone mode.
	Client   clientset.Interface
	Nodes    Nodes
	Recorder record.EventRecorder
	Mounts   Mounts
	Objects  Objects
	// StorageError sets the storage error of the node, which is not Ready while the error is not nil.
	StorageError func(error)
	// Stopped is closed when the agent stops, which ends the wait for caches. It may be nil.
	Stopped <-chan struct{}
}
