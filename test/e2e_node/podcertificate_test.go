//go:build e2e

package e2enode

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

// signerName is the signer of the pods' certificates: the test itself.
const signerName = "plimsoll.example/pods"

// withPodCertificates enables beta features that are disabled by default.
func withPodCertificates(config *kubeletv1beta1.KubeletConfiguration) {
	config.FeatureGates = map[string]bool{
		"ClusterTrustBundle": true, "ClusterTrustBundleProjection": true, "PodCertificateRequest": true,
	}
}

// authority signs certificates of pods.
type authority struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func (s *space) newAuthority() authority {
	s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	s.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: s.name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	s.must(err)
	certificate, err := x509.ParseCertificate(der)
	s.must(err)
	return authority{key: key, certificate: certificate}
}

func inPEM(certificate *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
}

// TestPodCertificateAndTrustBundle mounts a key, a certificate that the test signs, and a trust bundle into a pod. When
// the bundle is updated, the file in the pod follows.
func TestPodCertificateAndTrustBundle(t *testing.T) {
	s := spaceForRestart(t)
	s.restartKubelet(withPodCertificates)
	signer := s.newAuthority()
	bundle := s.trustBundle(inPEM(signer.certificate))
	pod := kit.IdlePod("pod")
	mount(pod, v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: &bundle.Name, Path: "roots.pem"}},
		{PodCertificate: &v1.PodCertificateProjection{
			SignerName: signerName, KeyType: "ECDSAP256", CredentialBundlePath: "own.pem",
			UserAnnotations: map[string]string{signerName: "sailor"},
		}},
	}}}, "/identity")
	pod = s.create(pod)
	s.signRequestOf(pod, signer)
	s.wait(pod, podTimeout, kit.Ready)

	s.expect("trust bundle", s.sh(pod, "cat /identity/roots.pem")+"\n", inPEM(signer.certificate))
	s.hasCertificateOf(pod, signer)
	other := s.newAuthority()
	bundle.Spec.TrustBundle = inPEM(other.certificate)
	_, err := s.client.CertificatesV1beta1().ClusterTrustBundles().Update(s.ctx, bundle, metav1.UpdateOptions{})
	s.must(err)
	// The kubelet updates the volumes of a pod that has changed at once.
	s.kubectl("annotate", "pod", pod.Name, "sync=again")
	s.eventually(slowTimeout, func(context.Context) error {
		if got := s.sh(pod, "cat /identity/roots.pem") + "\n"; got != inPEM(other.certificate) {
			return errors.New("the pod has the old trust bundle")
		}
		return nil
	})
}

// trustBundle creates a ClusterTrustBundle that is deleted when the test ends.
func (s *space) trustBundle(text string) *certificatesv1beta1.ClusterTrustBundle {
	s.t.Helper()
	bundles := s.client.CertificatesV1beta1().ClusterTrustBundles()
	bundle, err := bundles.Create(s.ctx, &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: s.name}, Spec: certificatesv1beta1.ClusterTrustBundleSpec{TrustBundle: text},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		if err := bundles.Delete(context.Background(), bundle.Name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	return bundle
}

// signRequestOf waits for the kubelet's certificate request for the pod, checks it, and signs it.
func (s *space) signRequestOf(pod *v1.Pod, signer authority) {
	s.t.Helper()
	requests := s.client.CertificatesV1beta1().PodCertificateRequests(s.name)
	var request *certificatesv1beta1.PodCertificateRequest
	s.eventually(podTimeout, func(ctx context.Context) error {
		list, err := requests.List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("%d requests for certificates, want one", len(list.Items))
		}
		if err == nil {
			request = &list.Items[0]
		}
		return err
	})
	spec := request.Spec
	s.expect("request",
		fmt.Sprint(spec.SignerName, spec.PodName, spec.PodUID, spec.ServiceAccountName, spec.NodeName,
			spec.UnverifiedUserAnnotations),
		fmt.Sprint(signerName, pod.Name, pod.UID, "default", cluster.NodeName, map[string]string{signerName: "sailor"}))

	begin := time.Now().Truncate(time.Second).Add(-time.Minute)
	refresh, end := begin.Add(time.Hour), begin.Add(2*time.Hour)
	request.Status = certificatesv1beta1.PodCertificateRequestStatus{
		CertificateChain: s.sign(signer, spec.StubPKCS10Request, begin, end),
		NotBefore:        &metav1.Time{Time: begin},
		BeginRefreshAt:   &metav1.Time{Time: refresh},
		NotAfter:         &metav1.Time{Time: end},
		Conditions: []metav1.Condition{{
			Type: certificatesv1beta1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue,
			Reason: "Signed", LastTransitionTime: metav1.Now(),
		}},
	}
	_, err := requests.UpdateStatus(s.ctx, request, metav1.UpdateOptions{})
	s.must(err)
}

// sign returns the certificate, in PEM, for a PKCS #10 request.
func (s *space) sign(signer authority, request []byte, begin, end time.Time) string {
	s.t.Helper()
	stub, err := x509.ParseCertificateRequest(request)
	s.must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "pod"}, DNSNames: []string{"pod.example"},
		NotBefore: begin, NotAfter: end, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, stub.PublicKey, signer.key)
	s.must(err)
	certificate, err := x509.ParseCertificate(der)
	s.must(err)
	return inPEM(certificate)
}

// hasCertificateOf checks that the pod has a certificate of the signer, and its key.
func (s *space) hasCertificateOf(pod *v1.Pod, signer authority) {
	s.t.Helper()
	own := []byte(s.sh(pod, "cat /identity/own.pem"))
	pair, err := tls.X509KeyPair(own, own)
	s.must(err)
	roots := x509.NewCertPool()
	roots.AddCert(signer.certificate)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "pod.example"})
	s.must(err)
}
