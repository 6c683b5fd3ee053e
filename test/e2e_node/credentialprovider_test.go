//go:build e2e

package e2enode

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	credentialapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// pullAudience is the audience of the tokens for the provider, pullRole the annotation that it requires of service
	// accounts.
	pullAudience = "registry"
	pullRole     = "plimsoll.example/role"
)

// providerConfig configures the provider for images of a registry.
const providerConfig = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: provider
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: [%q]
  defaultCacheDuration: 0s
  tokenAttributes:
    serviceAccountTokenAudience: ` + pullAudience + `
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [` + pullRole + `]
`

// provider stores each request and returns the same response to all.
const provider = `#!/bin/sh
cat > %[1]s/request.$$ && mv %[1]s/request.$$ %[1]s/request.$$.json && cat <<'END'
{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse",
"cacheKeyType":"Image","cacheDuration":"0s","auth":{%[2]q:{"username":%[3]q,"password":%[4]q}}}
END
`

// TestImageOfAPrivateRegistry pulls an image that requires a password. A pod may use it with a service account that the
// provider accepts, or with a secret; a pod with neither may not, although the image is on the node by then. A kubelet
// that is started after a crash, and the stock kubelet, know from records who may use the image when the registry is
// down.
func TestImageOfAPrivateRegistry(t *testing.T) {
	s := spaceForRestart(t)
	s.must(builder.Build(s.ctx, []build.Part{build.StockKubelet()}))
	registry := s.startPrivateRegistry()
	requests := s.withCredentialProvider(registry)
	puller := s.serviceAccount("puller")

	owner := s.ready(podOf(registry, "owner", puller.Name))
	s.oneRequestFor(requests, registry, owner)
	account := kubeletv1beta1.ImagePullServiceAccount{Namespace: s.name, Name: puller.Name, UID: string(puller.UID)}
	s.pullRecordIs(registry, []kubeletv1beta1.ImagePullServiceAccount{account}, nil)
	s.wait(s.create(podOf(registry, "stranger", "default")), podTimeout, waitingFor("ErrImagePull", "ImagePullBackOff"))
	s.loginSecret(registry)
	member := podOf(registry, "member", "default")
	member.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "login"}}
	s.ready(member)
	s.pullRecordIs(registry, []kubeletv1beta1.ImagePullServiceAccount{account}, []string{"login"})

	registry.Close()
	own := node.Kubelet()
	t.Cleanup(func() { node.SetKubelet(own) })
	for _, next := range []struct {
		name, kubelet string
		stop          func(context.Context) error
	}{
		{"after-crash", own, node.KillKubelet}, {"under-stock", node.Layout().Program("kubelet-stock"), node.StopKubelet},
	} {
		s.must(next.stop(s.ctx))
		node.SetKubelet(next.kubelet)
		s.must(node.StartKubelet(s.ctx, nil))
		s.ready(podOf(registry, next.name, puller.Name))
		stranger := podOf(registry, "stranger-"+next.name, "default")
		stranger.Spec.Containers[0].ImagePullPolicy = v1.PullNever
		s.wait(s.create(stranger), podTimeout, waitingFor("ErrImageNeverPull"))
	}
	s.pullRecordIs(registry, []kubeletv1beta1.ImagePullServiceAccount{account}, []string{"login"})
}

// withCredentialProvider restarts the kubelet, as restartKubelet does, with a credential provider for the registry. It
// returns the directory in which the provider stores requests.
func (s *space) withCredentialProvider(registry *privateRegistry) string {
	s.t.Helper()
	programs, requests, config := s.t.TempDir(), s.t.TempDir(), filepath.Join(s.t.TempDir(), "providers.yaml")
	s.must(os.WriteFile(config, fmt.Appendf(nil, providerConfig, registry.host()), 0o644))
	script := fmt.Appendf(nil, provider, requests, registry.host(), registryUser, registryPassword)
	s.must(os.WriteFile(filepath.Join(programs, "provider"), script, 0o755))
	s.must(node.StopKubelet(s.ctx))
	node.SetKubeletArgs([]string{
		"--image-credential-provider-config=" + config, "--image-credential-provider-bin-dir=" + programs,
	})
	s.t.Cleanup(func() { node.SetKubeletArgs(nil) })
	s.must(node.StartKubelet(s.ctx, nil))
	return requests
}

// serviceAccount creates a service account that the provider accepts.
func (s *space) serviceAccount(name string) *v1.ServiceAccount {
	s.t.Helper()
	account, err := s.client.CoreV1().ServiceAccounts(s.name).Create(s.ctx, &v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{pullRole: "sailor"}},
	}, metav1.CreateOptions{})
	s.must(err)
	return account
}

// loginSecret creates a secret called login with the password of the registry.
func (s *space) loginSecret(registry *privateRegistry) {
	s.t.Helper()
	login := fmt.Sprintf(`{"auths":{%q:{"username":%q,"password":%q}}}`, registry.host(), registryUser, registryPassword)
	_, err := s.client.CoreV1().Secrets(s.name).Create(s.ctx, &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "login"}, Type: v1.SecretTypeDockerConfigJson,
		StringData: map[string]string{v1.DockerConfigJsonKey: login},
	}, metav1.CreateOptions{})
	s.must(err)
}

// podOf is a pod of the registry's image. A kubelet may request tokens only for an audience of which the pod mounts a
// token.
func podOf(registry *privateRegistry, name, account string) *v1.Pod {
	pod := kit.IdlePod(name)
	pod.Spec.ServiceAccountName = account
	main := &pod.Spec.Containers[0]
	main.Image, main.Command = registry.image, nil
	mount(pod, v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: pullAudience, Path: "token"}},
	}}}, "/token")
	return pod
}

// oneRequestFor checks that the provider has received one request, and that it is for the pod.
func (s *space) oneRequestFor(requests string, registry *privateRegistry, pod *v1.Pod) {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(requests, "*.json"))
	s.must(err)
	if len(files) != 1 {
		s.t.Fatalf("the provider received %d requests, want one", len(files))
	}
	data, err := os.ReadFile(files[0])
	s.must(err)
	var request credentialapi.CredentialProviderRequest
	s.must(json.Unmarshal(data, &request))
	s.expect("kind of request", request.APIVersion+" "+request.Kind,
		"credentialprovider.kubelet.k8s.io/v1 CredentialProviderRequest")
	s.expect("image of the request", request.Image, registry.repository())
	s.expect("annotations of the service account", fmt.Sprint(request.ServiceAccountAnnotations),
		"map["+pullRole+":sailor]")

	parts := strings.Split(request.ServiceAccountToken, ".")
	if len(parts) != 3 {
		s.t.Fatalf("the token is %q, want three parts", request.ServiceAccountToken)
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	s.must(err)
	var token struct {
		Audiences  []string `json:"aud"`
		Subject    string   `json:"sub"`
		Kubernetes struct {
			Pod struct{ UID string }
		} `json:"kubernetes.io"`
	}
	s.must(json.Unmarshal(payload, &token))
	s.expect("audience of the token", fmt.Sprint(token.Audiences), "["+pullAudience+"]")
	s.expect("subject of the token", token.Subject, "system:serviceaccount:"+s.name+":"+pod.Spec.ServiceAccountName)
	s.expect("pod of the token", token.Kubernetes.Pod.UID, string(pod.UID))
}

// pullRecordIs checks which service accounts and secrets may use the registry's image, by the kubelet's record of it.
func (s *space) pullRecordIs(
	registry *privateRegistry, accounts []kubeletv1beta1.ImagePullServiceAccount, secrets []string,
) {
	s.t.Helper()
	var found []kubeletv1beta1.ImagePullCredentials
	for _, record := range s.pullRecords() {
		if credentials, has := record.CredentialMapping[registry.repository()]; has && record.ImageRef != "" {
			found = append(found, credentials)
		}
	}
	if len(found) != 1 {
		s.t.Fatalf("%d records of images of %s, want one", len(found), registry.repository())
	}
	var names []string
	for _, secret := range found[0].KubernetesSecrets {
		names = append(names, secret.Name)
		if secret.Namespace != s.name || secret.UID == "" || secret.CredentialHash == "" {
			s.t.Errorf("the record has the secret %+v, want one of %s, with its UID and a hash", secret, s.name)
		}
	}
	if !slices.Equal(found[0].KubernetesServiceAccounts, accounts) || !slices.Equal(names, secrets) ||
		found[0].NodePodsAccessible {
		s.t.Errorf("the record is %+v, want the service accounts %v and the secrets %v", found[0], accounts, secrets)
	}
}

// pullRecords returns the kubelet's records of the images that it has pulled.
func (s *space) pullRecords() []kubeletv1beta1.ImagePulledRecord {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(node.Layout().KubeletRoot(), "image_manager", "pulled", "sha256-*"))
	s.must(err)
	var records []kubeletv1beta1.ImagePulledRecord
	for _, file := range files {
		data, err := os.ReadFile(file)
		s.must(err)
		var record kubeletv1beta1.ImagePulledRecord
		s.must(json.Unmarshal(data, &record))
		records = append(records, record)
	}
	return records
}
