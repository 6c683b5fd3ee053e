package review

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// api is an API server that answers reviews.
type api struct {
	*httptest.Server

	mu sync.Mutex
	// users are those of tokens, and permitted the names of users who may register the plugin p.
	users     map[string]authenticationv1.UserInfo
	permitted []string
	// answer replaces the answer of one path, if it returns true.
	answer func(w http.ResponseWriter, r *http.Request) bool
	tokens []authenticationv1.TokenReviewSpec
	access []authorizationv1.SubjectAccessReviewSpec
}

const (
	tokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
)

func serveAPI(t *testing.T) *api {
	t.Helper()
	a := &api{users: map[string]authenticationv1.UserInfo{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// client returns a client that speaks JSON or protobuf.
func (a *api) client(t *testing.T, contentType string) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: a.URL, ContentConfig: rest.ContentConfig{ContentType: contentType},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	answer := a.answer
	a.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	object, err := decode(r)
	if err != nil || r.Method != http.MethodPost {
		http.Error(w, "invalid request", http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch review := object.(type) {
	case *authenticationv1.TokenReview:
		a.tokens = append(a.tokens, review.Spec)
		review.Status = a.authenticate(&review.Spec)
	case *authorizationv1.SubjectAccessReview:
		a.access = append(a.access, review.Spec)
		review.Status.Allowed = slices.Contains(a.permitted, review.Spec.User) && *review.Spec.ResourceAttributes ==
			authorizationv1.ResourceAttributes{Verb: Register, Group: Group, Resource: EvictionPlugins, Name: "p"}
		if !review.Status.Allowed {
			review.Status.Reason = "no rule"
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(object)
}

// authenticate answers as an API server whose only audience is its own.
func (a *api) authenticate(spec *authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	user, found := a.users[spec.Token]
	if !found || len(spec.Audiences) > 0 {
		return authenticationv1.TokenReviewStatus{Error: "invalid bearer token"}
	}
	return authenticationv1.TokenReviewStatus{Authenticated: true, User: user, Audiences: []string{"api"}}
}

func decode(r *http.Request) (runtime.Object, error) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), r.Header.Get("Content-Type"))
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	into := runtime.Object(&authenticationv1.TokenReview{})
	if r.URL.Path == accessReviews {
		into = &authorizationv1.SubjectAccessReview{}
	}
	object, _, err := info.Serializer.Decode(data, nil, into)
	return object, err
}

func (a *api) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}
