package app

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/configz"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	zpagesfeatures "k8s.io/component-base/zpages/features"
)

// /configz has the configuration in its versioned form, with the changes by flags; /flagz has the flags of the command
// line, and only with its gate.
func TestConfigurationPages(t *testing.T) {
	t.Cleanup(func() { configz.Delete("kubeletconfig") })
	p := &process{settings: validSettings(t, "--max-pods=7", "--node-labels=a=b")}
	for _, on := range []bool{false, true} {
		featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, zpagesfeatures.ComponentFlagz, on)
		configz.Delete("kubeletconfig")
		if err := p.publishConfig(t.Context()); err != nil {
			t.Fatal(err)
		}
		if shown := p.deps.Serving.Flagz != nil; shown != on {
			t.Errorf("gate %v: flags are shown %v", on, shown)
		}
	}
	if flags := p.deps.Serving.Flagz.GetFlagz(); flags["max-pods"] != "7" || flags["node-labels"] != "a=b" {
		t.Errorf("flags: max-pods %q, node-labels %q", flags["max-pods"], flags["node-labels"])
	}
	mux := http.NewServeMux()
	configz.InstallHandler(mux)
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/configz", nil))
	var page struct {
		Config struct {
			APIVersion, Kind string
			MaxPods          int
			PodPidsLimit     *int
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &page); err != nil {
		t.Fatalf("%v in %s", err, answer.Body)
	}
	config := page.Config
	if config.Kind != "KubeletConfiguration" || config.APIVersion != "kubelet.config.k8s.io/v1beta1" ||
		config.MaxPods != 7 || config.PodPidsLimit == nil {
		t.Errorf("configuration shown as %+v", config)
	}
}

// A page that exists already does not prevent the start.
func TestConfigurationPageTwice(t *testing.T) {
	t.Cleanup(func() { configz.Delete("kubeletconfig") })
	p := &process{settings: validSettings(t)}
	for range 2 {
		if err := p.publishConfig(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
