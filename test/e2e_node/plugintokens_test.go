//go:build e2e

package e2enode

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/kit"
)

const (
	// tokenConfig has plugins verified by their tokens. The identity for taints has no permissions in the test.
	tokenConfig = `apiVersion: nodepressure.plimsoll.dev/v1alpha1
kind: NodePressureConfiguration
plugins:
  eviction:
    remote: ["*"]
    period: 1s
    authentication: Token
    taints:
      kubeconfig: %s
`
	// pluginPermissions has a ServiceAccount that may register the plugin example, in the namespace pluginAccounts.
	pluginPermissions = "rbac/eviction-plugins.yaml"
	pluginAccounts    = "eviction-plugins"
	permittedPlugin   = "example"
	// nodeUser is the user of the kubelet at the API server.
	nodeUser = "system:node:" + cluster.NodeName
)

// TestPluginTokens registers plugins with tokens of ServiceAccounts. Only the one whose account may register it is
// called. Then the API server refuses reviews of the node, and taints: other plugins cannot register, and conditions
// have no taints. Nothing else changes.
func TestPluginTokens(t *testing.T) {
	s := spaceForRestart(t)
	s.kubectl("apply", "--namespace", pluginAccounts, "-f", manifestFile(pluginPermissions))
	t.Cleanup(func() {
		after := *s
		after.ctx = context.Background()
		after.kubectl("delete", "--namespace", pluginAccounts, "--ignore-not-found", "--wait=false", "-f",
			manifestFile(pluginPermissions))
	})
	s.withPressureConfig(fmt.Sprintf(tokenConfig, node.Layout().TaintsConfig()), nil)
	permitted := s.pluginToken(pluginAccounts, permittedPlugin)
	p := s.startKatalystWith(permittedPlugin, answerWithToken(permitted, ""))
	const account, must = "system:serviceaccount:", " must be allowed to register evictionplugins.nodepressure.plimsoll"
	for name, refused := range map[string]struct{ token, reason string }{
		"katalyst-without":  {"", "does not implement GetToken"},
		"katalyst-default":  {s.pluginToken(s.name, "default"), account + s.name + ":default" + must},
		"katalyst-other":    {permitted, account + pluginAccounts + ":" + permittedPlugin + must},
		"katalyst-audience": {s.pluginToken(pluginAccounts, permittedPlugin, "elsewhere"), "does not accept the token"},
	} {
		s.startKatalystWith(name, answerWithToken(refused.token, "")).refusedBecause(refused.reason)
	}
	p.registered(p.started)

	s.refuseReviews()
	s.startKatalystWith("katalyst-late", answerWithToken(permitted, "")).refusedBecause("could not be verified")
	s.nothingElseIsRefused(p, permitted)
}

// nothingElseIsRefused has the plugin, which is registered, request a pod by force and report a condition, while the
// API server refuses reviews and taints.
func (s *space) nothingElseIsRefused(p *katalystPlugin, token string) {
	s.t.Helper()
	pod := s.ready(kit.Bound(kit.IdlePod("victim")))
	since := p.answer("%s", answerWithToken(token, fmt.Sprintf(`,
		"condition": {"name": "Refused", "met": true, "effects": ["NoSchedule"]},
		"evict": [{"pod": "%s/victim", "reason": "no longer needed", "force": true}]`, s.name)))
	p.evictedFor(s.wait(pod, pluginTimeout, endedFor("Evicted")), "no longer needed")
	kind := pluginCondition("Refused")
	s.nodeHas(kind, v1.ConditionTrue)
	s.eventually(pluginTimeout, func(ctx context.Context) error {
		return s.nodeEvent(ctx, since, "EvictionPluginTaintsUnavailable", "forbidden")
	})
	s.nodeTainted(kind)
	s.nodeHas(v1.NodeReady, v1.ConditionTrue)
	s.ready(kit.Bound(kit.IdlePod("admitted")))
}

// answerWithToken returns the answers of a plugin with that token, or without GetToken for "".
func answerWithToken(token, others string) string {
	return fmt.Sprintf(`{"serve": true, "token": %q%s}`, token, others)
}

// pluginToken returns a token of the ServiceAccount, for the API server if no audiences are given.
func (s *space) pluginToken(namespace, account string, audiences ...string) string {
	s.t.Helper()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	accounts := s.client.CoreV1().ServiceAccounts(namespace)
	answer, err := accounts.CreateToken(s.ctx, account, request, metav1.CreateOptions{})
	s.must(err)
	return answer.Status.Token
}

// refusedBecause waits until the plugin is refused with a reason that contains the text. It was not called.
func (p *katalystPlugin) refusedBecause(text string) {
	s := p.s
	s.t.Helper()
	s.eventually(pluginTimeout, func(context.Context) error {
		err := fmt.Errorf("plugin %s was not refused", p.name)
		for _, refused := range s.pluginPage().Refused {
			if refused.Socket != p.socket {
				continue
			}
			if strings.Contains(refused.Reason, text) {
				return nil
			}
			err = fmt.Errorf("plugin %s was refused because: %s", p.name, refused.Reason)
		}
		return err
	})
	if calls := p.recorded(p.started, ""); len(calls) > 0 || p.shown() != nil {
		s.t.Errorf("plugin %s is called: %v", p.name, calls)
	}
}

// refuseReviews has the API server refuse each TokenReview that the node creates, until the test ends.
func (s *space) refuseReviews() {
	s.t.Helper()
	server, authority := s.serveAPIServer(http.HandlerFunc(refuseAdmission))
	webhooks := s.client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := webhooks.Create(s.ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "reviews.plimsoll.example",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      new(server.URL),
				CABundle: authority,
			},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{"authentication.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"tokenreviews"},
				},
			}},
			MatchConditions: []admissionregistrationv1.MatchCondition{{
				Name: "node", Expression: fmt.Sprintf("request.userInfo.username == '%s'", nodeUser),
			}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() {
		if err := webhooks.Delete(context.Background(), s.name, metav1.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	})
	client := s.asNode()
	s.eventually(podTimeout, func(ctx context.Context) error {
		_, err := client.AuthenticationV1().TokenReviews().Create(ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "x"}}, metav1.CreateOptions{})
		switch {
		case err == nil:
			return errors.New("the API server accepts a review")
		case apierrors.IsForbidden(err):
			return nil
		}
		return err
	})
}

// serveAPIServer starts a server that the API server reaches, at the address of the node, until the test ends. It
// returns the certificate of its authority too.
func (s *space) serveAPIServer(handler http.Handler) (server *httptest.Server, authority []byte) {
	s.t.Helper()
	object, err := kit.Node(s.ctx, s.client)
	s.must(err)
	i := slices.IndexFunc(object.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type == v1.NodeInternalIP })
	address := object.Status.Addresses[i].Address
	authority, key, err := cert.GenerateSelfSignedCertKey(address, nil, nil)
	s.must(err)
	pair, err := tls.X509KeyPair(authority, key)
	s.must(err)
	server = httptest.NewUnstartedServer(handler)
	s.must(server.Listener.Close())
	server.Listener, err = net.Listen("tcp", net.JoinHostPort(address, "0"))
	s.must(err)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	server.StartTLS()
	s.t.Cleanup(server.Close)
	return server, authority
}

// asNode returns a client with the user of the kubelet.
func (s *space) asNode() kubernetes.Interface {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", node.Layout().AdminConfig())
	s.must(err)
	config.Impersonate = rest.ImpersonationConfig{UserName: nodeUser, Groups: []string{"system:nodes"}}
	client, err := kubernetes.NewForConfig(config)
	s.must(err)
	return client
}

// refuseAdmission is a webhook that refuses each object.
func refuseAdmission(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no request", http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{
		UID: review.Request.UID, Result: &metav1.Status{Code: http.StatusForbidden, Message: "refused by the test"},
	}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&review)
}
