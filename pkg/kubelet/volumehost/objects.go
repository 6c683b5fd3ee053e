package volumehost

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var errStandalone = errors.New("not supported due to running kubelet in standalone mode")

// GetSecretFunc returns a function that reads a secret of a registered pod. In standalone mode it returns an error.
func (h *Host) GetSecretFunc() func(namespace, name string) (*v1.Secret, error) {
	if h.cfg.Objects.Secrets == nil {
		return func(string, string) (*v1.Secret, error) { return nil, errStandalone }
	}
	return h.cfg.Objects.Secrets.GetSecret
}

// GetConfigMapFunc returns a function that reads a config map of a registered pod. In standalone mode it returns an
// error.
func (h *Host) GetConfigMapFunc() func(namespace, name string) (*v1.ConfigMap, error) {
	if h.cfg.Objects.ConfigMaps == nil {
		return func(string, string) (*v1.ConfigMap, error) { return nil, errStandalone }
	}
	return h.cfg.Objects.ConfigMaps.GetConfigMap
}

// GetServiceAccountTokenFunc returns a function that requests a token of a service account, or returns the cached one
// until it needs a refresh.
func (h *Host) GetServiceAccountTokenFunc() func(
	namespace, name string, tr *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	return h.cfg.Objects.Tokens.GetServiceAccountToken
}

// DeleteServiceAccountTokenFunc returns a function that deletes the cached tokens of a pod.
func (h *Host) DeleteServiceAccountTokenFunc() func(pod types.UID) {
	return h.cfg.Objects.Tokens.DeleteServiceAccountToken
}

// GetTrustAnchorsByName returns the anchors of one ClusterTrustBundle in PEM.
func (h *Host) GetTrustAnchorsByName(name string, allowMissing bool) ([]byte, error) {
	return h.cfg.Objects.TrustBundles.GetTrustAnchorsByName(name, allowMissing)
}

// GetTrustAnchorsBySigner returns the joined anchors of all ClusterTrustBundles of a signer that the selector matches,
// in PEM.
func (h *Host) GetTrustAnchorsBySigner(
	signer string, selector *metav1.LabelSelector, allowMissing bool,
) ([]byte, error) {
	return h.cfg.Objects.TrustBundles.GetTrustAnchorsBySigner(signer, selector, allowMissing)
}

// GetPodCertificateCredentialBundle returns private key and certificate chain of one source of a pod's projected
// volume.
//
//nolint:revive // volume plugins have this many parameters
func (h *Host) GetPodCertificateCredentialBundle(
	ctx context.Context, namespace, podName, podUID, volumeName string, sourceIndex int,
) ([]byte, []byte, error) {
	return h.cfg.Objects.PodCertificates.GetPodCertificateCredentialBundle(ctx, namespace, podName, podUID, volumeName,
		sourceIndex)
}
