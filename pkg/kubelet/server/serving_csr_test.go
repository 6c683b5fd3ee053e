package server

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"

	"github.com/plimsoll-project/plimsoll/test/await"
)

// signer is the part of the control plane that signs certificate requests.
type signer struct {
	t      *testing.T
	client clientset.Interface
	key    crypto.Signer
	ca     *x509.Certificate
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true,
		NotBefore:             time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(2 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{
		t: t, client: namingClient(), key: key,
		ca: parseCertificate(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
	}
}

// namingClient sets names of certificate requests, as the API server does. It has the newest request only, because it
// ignores the field selectors with which the kubelet lists its own.
func namingClient() clientset.Interface {
	client, count := fake.NewClientset(), 0
	client.PrependReactor("create", "certificatesigningrequests",
		func(action clienttesting.Action) (bool, runtime.Object, error) {
			resource := action.GetResource()
			request := action.(clienttesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
			if count > 0 {
				if err := client.Tracker().Delete(resource, "", fmt.Sprintf("%s%d", request.GenerateName, count)); err != nil {
					return true, nil, err
				}
			}
			count++
			request.Name, request.UID = fmt.Sprintf("%s%d", request.GenerateName, count), types.UID(fmt.Sprint(count))
			return true, request, client.Tracker().Create(resource, request, "")
		})
	return client
}

// sign approves and signs the request that has no certificate yet. It was issued at notBefore and ends at notAfter.
func (s *signer) sign(ctx context.Context, notBefore, notAfter time.Time) *certificatesv1.CertificateSigningRequest {
	s.t.Helper()
	requests := s.client.CertificatesV1().CertificateSigningRequests()
	var open *certificatesv1.CertificateSigningRequest
	await.Until(s.t, "a certificate request", func() error {
		list, err := requests.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list.Items, func(r certificatesv1.CertificateSigningRequest) bool {
			return len(r.Status.Certificate) == 0
		})
		if i < 0 {
			return fmt.Errorf("none of %d is open", len(list.Items))
		}
		open = &list.Items[i]
		return nil
	})
	block, _ := pem.Decode(open.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		s.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: request.Subject, NotBefore: notBefore,
		NotAfter: notAfter,
		DNSNames: request.DNSNames, IPAddresses: request.IPAddresses,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, s.ca, request.PublicKey, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	open.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
		{Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue},
	}
	open.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if _, err := requests.UpdateStatus(ctx, open, metav1.UpdateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	return open
}

// With serverTLSBootstrap the serving certificate comes from the API server for the node's name and addresses, is
// renewed before it expires, and is stored where stock stores it. Before the first one connections fail. The manager
// registers metrics, so this is possible once in a process.
func TestServingCertificateFromAPI(t *testing.T) {
	control, dir := newSigner(t), t.TempDir()
	certificates, err := NewCertificates(CertificatesConfig{
		Options: &stockserver.TLSOptions{}, Kubelet: &kubeletconfig.KubeletConfiguration{}, RequestFromAPI: true,
		Client: control.client, NodeName: "here", Directory: dir,
		Addresses: func() []v1.NodeAddress {
			return []v1.NodeAddress{
				{Type: v1.NodeInternalIP, Address: loopback.String()}, {Type: v1.NodeHostName, Address: "here.example"},
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := certificates.TLS().GetCertificate(nil); err == nil {
		t.Error("a certificate before it was requested")
	}
	runCertificates(t, certificates)

	now := time.Now()
	first := control.sign(t.Context(), now.Add(-time.Hour), now.Add(time.Minute))
	if first.Spec.SignerName != certificatesv1.KubeletServingSignerName {
		t.Errorf("requested from %q", first.Spec.SignerName)
	}
	// The first one is due for renewal at once.
	second := control.sign(t.Context(), now.Add(-time.Minute), now.Add(time.Hour))
	want := parseCertificate(t, second.Status.Certificate)
	await.Until(t, "the second certificate", func() error {
		served, err := certificates.TLS().GetCertificate(nil)
		if err != nil {
			return err
		}
		if !served.Leaf.Equal(want) {
			return errors.New("another certificate is served")
		}
		return nil
	})
	if want.Subject.CommonName != "system:node:here" || !slices.Equal(want.DNSNames, []string{"here.example"}) ||
		!want.IPAddresses[0].Equal(loopback) {
		t.Errorf("certificate is for %v, %v, %v", want.Subject, want.DNSNames, want.IPAddresses)
	}
	if _, err := os.Stat(filepath.Join(dir, "kubelet-server-current.pem")); err != nil {
		t.Error(err)
	}
}
