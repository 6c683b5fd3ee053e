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

// makeAuth creates authentication and authorization of the kubelet API. The API server reviews tokens and access.
func (p *process) makeAuth(context.Context) error {
	authn, err := newAuthentication(p.deps.Clients.Kube, p.settings.Config.Authentication)
	if err != nil {
		return err
	}
	authz, err := newAuthorizer(p.deps.Clients.Kube, p.settings.Config.Authorization)
	if err != nil {
		return err
	}
	if authn.run != nil {
		p.background = append(p.background, authn.run)
	}
	attributes := server.NewNodeAuthorizerAttributesGetter(p.deps.Identity.NodeName)
	p.deps.Serving.Auth = server.NewKubeletAuth(authn.authenticator, attributes, authz, authn.clientCA)
	return nil
}

// authentication identifies the user of a request.
type authentication struct {
	authenticator authenticator.Request
	// clientCA is the bundle that verifies client certificates; empty without one.
	clientCA dynamiccertificates.CAContentProvider
	// run updates clientCA until its context ends; nil without a file.
	run func(context.Context)
}

// newAuthentication combines client certificates, bearer tokens and anonymous access, as configured. client may be nil
// in standalone mode. If all methods are off, every request is rejected, which is valid: a hardened node without an API
// server.
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
		auth.run = func(ctx context.Context) { bundle.Run(ctx, 1) }
	}
	if config.Webhook.Enabled {
		if client == nil {
			return nil, fmt.Errorf("authentication.webhook.enabled (--authentication-token-webhook) needs --kubeconfig")
		}
		delegating.TokenAccessReviewClient = client.AuthenticationV1()
		delegating.WebhookRetryBackoff = genericoptions.DefaultAuthWebhookRetryBackoff()
	}
	if auth.run == nil && !config.Webhook.Enabled && !config.Anonymous.Enabled {
		auth.authenticator = authenticator.RequestFunc(rejectAll)
		return auth, nil
	}
	var err error
	auth.authenticator, _, err = delegating.New()
	return auth, err
}

// rejectAll is authentication with all methods off: the kubelet API responds 401 to every request.
func rejectAll(*http.Request) (*authenticator.Response, bool, error) { return nil, false, nil }

// newAuthorizer returns the authorizer for authenticated users.
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
