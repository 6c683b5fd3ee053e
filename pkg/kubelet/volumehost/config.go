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

// Nodes answers what is known of the own node.
type Nodes interface {
	Name() types.NodeName
	// Lookup fails if the API server's node is not known here.
	Lookup(ctx context.Context) (*v1.Node, error)
	// Node falls back to a description of the node.
	Node(ctx context.Context) (*v1.Node, error)
}

// Secrets answers from the pods' registered secrets.
type Secrets interface {
	GetSecret(namespace, name string) (*v1.Secret, error)
}

// ConfigMaps answers from the pods' registered config maps.
type ConfigMaps interface {
	GetConfigMap(namespace, name string) (*v1.ConfigMap, error)
}

// Tokens makes service account tokens and keeps them until they need a refresh.
type Tokens interface {
	GetServiceAccountToken(
		namespace, name string, tr *authenticationv1.TokenRequest,
	) (*authenticationv1.TokenRequest, error)
	DeleteServiceAccountToken(podUID types.UID)
}

// TrustBundles answers from the ClusterTrustBundles (KEP-3257).
type TrustBundles interface {
	GetTrustAnchorsByName(name string, allowMissing bool) ([]byte, error)
	GetTrustAnchorsBySigner(signer string, selector *metav1.LabelSelector, allowMissing bool) ([]byte, error)
}

// PodCertificates holds the certificates issued for pods (KEP-4317): key and chain.
type PodCertificates interface {
	GetPodCertificateCredentialBundle(
		ctx context.Context, namespace, podName, podUID, volumeName string, sourceIndex int,
	) ([]byte, []byte, error)
}

// Objects are the sources of what volumes are filled with.
type Objects struct {
	// Secrets and ConfigMaps are nil in standalone mode: such volumes then fail with a reason.
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

// Config is what a Host is made of. Everything is required unless its comment says otherwise.
type Config struct {
	Layout paths.Layout
	// Client is nil in standalone mode.
	Client   clientset.Interface
	Nodes    Nodes
	Recorder record.EventRecorder
	Mounts   Mounts
	Objects  Objects
	// StorageError keeps the node from becoming Ready while its argument is not nil.
	StorageError func(error)
	// Stopped ends waiting for caches; nil means never.
	Stopped <-chan struct{}
}
