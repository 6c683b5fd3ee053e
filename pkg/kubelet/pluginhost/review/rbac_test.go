package review

import (
	"os"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// The manifest permits what Review asks for.
func TestManifest(t *testing.T) {
	manifest, err := os.ReadFile("../../../../config/rbac/eviction-plugins.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		rule := role.Rules[0]
		if len(role.Rules) != 1 || rule.Verbs[0] != Register || rule.APIGroups[0] != Group ||
			rule.Resources[0] != EvictionPlugins || rule.ResourceNames[0] != "example" {
			t.Errorf("got %+v", role.Rules)
		}
		return
	}
	t.Error("no ClusterRole")
}
