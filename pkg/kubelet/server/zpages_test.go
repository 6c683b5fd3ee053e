package server

import (
	"net/http"
	"regexp"
	"testing"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	zpagesfeatures "k8s.io/component-base/zpages/features"
	stockserver "k8s.io/kubernetes/pkg/kubelet/server"
)

// The pages about the process (KEP-4827, KEP-4828) exist if their gates are on.
func TestProcessPages(t *testing.T) {
	for _, on := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, zpagesfeatures.ComponentFlagz, on)
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, zpagesfeatures.ComponentStatusz, on)
		auth := newAuth(func(authorizer.Attributes) bool { return true })
		handler := stockserver.NewServer(t.Context(), newWorld().host(), analyzer{}, nil, flags{}, auth, debugConfig())
		for path, want := range map[string]string{"/flagz": `\na[ :=]+b\n`, "/statusz": "Go version"} {
			answer := request(t, &handler, endpoint{http.MethodGet, path}, "reader")
			if on && (answer.Code != http.StatusOK || !regexp.MustCompile(want).MatchString(answer.Body.String())) {
				t.Errorf("%s: %d, %q", path, answer.Code, answer.Body)
			}
			if !on && answer.Code != http.StatusNotFound {
				t.Errorf("%s without its gate: %d", path, answer.Code)
			}
		}
	}
}
