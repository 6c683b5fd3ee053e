package review

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/pluginhost"
)

// What a user must be permitted to register a plugin: the verb Register on a resource of the group Group, with the name
// of the plugin as the name of the object. There are no such objects at the API server, only permissions.
const (
	Group           = "nodepressure.plimsoll.dev"
	Register        = "register"
	EvictionPlugins = "evictionplugins"
)

const (
	// timeout bounds one request to the API server.
	timeout = 4 * time.Second
	// maxAnswerBytes is the greatest size of a TokenReview in an answer. It repeats the token.
	maxAnswerBytes = 1 << 20
)

var errTooLarge = errors.New("the answer has more than 1 MiB")

// Reviewer verifies tokens of plugins of one type. It is safe for concurrent use.
type Reviewer struct {
	tokens, access rest.Interface
	resource       string
}

// New returns a Reviewer of permissions on the resource, for example EvictionPlugins. It makes no request.
func New(client kubernetes.Interface, resource string) *Reviewer {
	return &Reviewer{
		tokens: client.AuthenticationV1().RESTClient(), access: client.AuthorizationV1().RESTClient(), resource: resource,
	}
}

// Review verifies that the token belongs to a user who may register the plugin. The token must be one for the API
// server itself: one for another audience is invalid. The error is ErrInvalidToken or ErrNotPermitted of package
// pluginhost, with a reason, if the API server has decided so; any other error means that there is no decision. Review
// makes two requests, each once and for at most 4 s.
func (r *Reviewer) Review(ctx context.Context, token, plugin string) error {
	user, err := r.authenticate(ctx, token)
	if err != nil {
		return err
	}
	return r.authorize(ctx, user, plugin)
}

// authenticate returns the user of a token.
func (r *Reviewer) authenticate(ctx context.Context, token string) (*authenticationv1.UserInfo, error) {
	review := &authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authenticationv1.SchemeGroupVersion.String(), Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token},
	}
	if err := r.createTokenReview(ctx, review); err != nil {
		return nil, fmt.Errorf("creating a TokenReview: %w", err)
	}
	if !review.Status.Authenticated || review.Status.User.Username == "" {
		return nil, because(pluginhost.ErrInvalidToken, review.Status.Error)
	}
	return &review.Status.User, nil
}

// createTokenReview creates the review and replaces it by the answer. The request and the answer are streams of bytes,
// since client-go writes objects to the log, with the token, from verbosity 8.
func (r *Reviewer) createTokenReview(ctx context.Context, review *authenticationv1.TokenReview) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := json.Marshal(review)
	if err != nil {
		return err
	}
	answer, err := r.tokens.Post().Resource("tokenreviews").MaxRetries(0).
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").
		Body(bytes.NewReader(request)).Stream(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	data, err := io.ReadAll(io.LimitReader(answer, maxAnswerBytes+1))
	if err != nil {
		return err
	}
	if len(data) > maxAnswerBytes {
		return errTooLarge
	}
	review.Status = authenticationv1.TokenReviewStatus{}
	return json.Unmarshal(data, review)
}

// authorize returns whether the user may register the plugin.
func (r *Reviewer) authorize(ctx context.Context, user *authenticationv1.UserInfo, plugin string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: Register, Group: Group, Resource: r.resource, Name: plugin,
		},
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra(user),
	}}
	answer := &authorizationv1.SubjectAccessReview{}
	err := r.access.Post().Resource("subjectaccessreviews").MaxRetries(0).Body(review).Do(ctx).Into(answer)
	if err != nil {
		return fmt.Errorf("creating a SubjectAccessReview: %w", err)
	}
	if s := &answer.Status; !s.Allowed || s.Denied {
		who := fmt.Sprintf("%s must be allowed to %s %s.%s with the name %s", user.Username, Register, r.resource, Group,
			plugin)
		return because(pluginhost.ErrNotPermitted, who, s.Reason, s.EvaluationError)
	}
	return nil
}

func extra(user *authenticationv1.UserInfo) map[string]authorizationv1.ExtraValue {
	if len(user.Extra) == 0 {
		return nil
	}
	values := make(map[string]authorizationv1.ExtraValue, len(user.Extra))
	for key, value := range user.Extra {
		values[key] = authorizationv1.ExtraValue(value)
	}
	return values
}

// because adds the reasons that are not empty to an error.
func because(err error, reasons ...string) error {
	var given []string
	for _, reason := range reasons {
		if reason != "" {
			given = append(given, reason)
		}
	}
	if len(given) == 0 {
		return err
	}
	return fmt.Errorf("%w: %s", err, strings.Join(given, "; "))
}
