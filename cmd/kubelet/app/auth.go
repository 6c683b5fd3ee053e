package app

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	clientset "k8s.io/client-go/kubernetes"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/server"
)

// guard decides who may use the kubelet API: the API server says whose token it is and what they may do.
func (p *process) guard(context.Context) error {
	authn, err := newAuthentication(p.deps.Clients.Kube, p.settings.Config.Authentication)
	if err != nil {
		return err
	}
	authz, err := newAuthorizer(p.deps.Clients.Kube, p.settings.Config.Authorization)
	if err != nil {
		return err
	}
	if authn.follow != nil {
		p.background = append(p.background, authn.follow)
	}
	attributes := server.NewNodeAuthorizerAttributesGetter(p.deps.Identity.NodeName)
	p.deps.Serving.Auth = server.NewKubeletAuth(authn.authenticator, attributes, authz, authn.clientCA)
	return nil
}

// authentication tells who sends a request.
type authentication struct {
	authenticator authenticator.Request
	// clientCA is the bundle that client certificates are checked against; empty without one.
	clientCA dynamiccertificates.CAContentProvider
	// follow keeps clientCA current; nil when there is nothing to follow.
	follow func(context.Context)
}

// newAuthentication combines client certificates, bearer tokens and anonymous access, whichever are on. client may be
// nil in standalone mode. With all of them off nobody is let in, which is valid: a hardened node without an API server.
func newAuthentication(
	client clientset.Interface, config kubeletconfig.KubeletAuthentication,
) (*authentication, error) {
	auth := &authentication{clientCA: dynamiccertificates.NewUnionCAContentProvider()}
	delegating := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous: &apiserver.AnonymousAuthConfig{Enabled: config.Anonymous.Enabled},
		CacheTTL:  config.Webhook.CacheTTL.Duration,
	}
	if file := config.X509.ClientCAFile; file != "" {
		bundle, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-bundle", file)
		if err != nil {
			return nil, fmt.Errorf("authentication.x509.clientCAFile (--client-ca-file) %q: %w", file, err)
		}
		// Set only here: a nil bundle in a non-nil interface would panic at the first client certificate.
		delegating.ClientCertificateCAContentProvider = bundle
		auth.clientCA = bundle
		auth.follow = func(ctx context.Context) { bundle.Run(ctx, 1) }
	}
	if config.Webhook.Enabled {
		if client == nil {
			return nil, fmt.Errorf("authentication.webhook.enabled (--authentication-token-webhook) needs --kubeconfig")
		}
		delegating.TokenAccessReviewClient = client.AuthenticationV1()
		delegating.WebhookRetryBackoff = genericoptions.DefaultAuthWebhookRetryBackoff()
	}
	if auth.follow == nil && !config.Webhook.Enabled && !config.Anonymous.Enabled {
		auth.authenticator = authenticator.RequestFunc(nobody)
		return auth, nil
	}
	var err error
	auth.authenticator, _, err = delegating.New()
	return auth, err
}

// nobody is authentication with every method switched off: the kubelet API answers 401 to everybody.
func nobody(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil }

// newAuthorizer decides what an authenticated user may do.
func newAuthorizer(
	client clientset.Interface, config kubeletconfig.KubeletAuthorization,
) (authorizer.Authorizer, error) {
	const name = "authorization.mode (--authorization-mode)"
	switch config.Mode {
	case kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case kubeletconfig.KubeletAuthorizationModeWebhook:
		if client == nil {
			return nil, fmt.Errorf("%s %q needs --kubeconfig", name, config.Mode)
		}
		return authorizerfactory.DelegatingAuthorizerConfig{
			SubjectAccessReviewClient: client.AuthorizationV1(),
			AllowCacheTTL:             config.Webhook.CacheAuthorizedTTL.Duration,
			DenyCacheTTL:              config.Webhook.CacheUnauthorizedTTL.Duration,
			WebhookRetryBackoff:       genericoptions.DefaultAuthWebhookRetryBackoff(),
		}.New()
	default:
		return nil, fmt.Errorf("%s %q is unknown", name, config.Mode)
	}
}
