package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The definition in config/crd accepts what that of Katalyst accepts: they differ in descriptions and annotations only.
func TestDefinitionIsKatalysts(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubewharf/katalyst-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	theirs := definition(t, filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "bases",
		"node.katalyst.kubewharf.io_customnoderesources.yaml"))
	ours := definition(t, filepath.Join("..", "..", "config", "crd", "customnoderesources.yaml"))
	if !reflect.DeepEqual(ours["spec"], theirs["spec"]) {
		got, _ := yaml.Marshal(ours["spec"])
		want, _ := yaml.Marshal(theirs["spec"])
		t.Errorf("ours is\n%s\nKatalyst's is\n%s", got, want)
	}
}

// definition reads a CustomResourceDefinition without descriptions.
func definition(t *testing.T, path string) map[string]any {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(data, &object); err != nil {
		t.Fatal(err)
	}
	removeDescriptions(object)
	return object
}

func removeDescriptions(value any) {
	switch v := value.(type) {
	case map[string]any:
		if _, ok := v["description"].(string); ok {
			delete(v, "description")
		}
		for _, member := range v {
			removeDescriptions(member)
		}
	case []any:
		for _, element := range v {
			removeDescriptions(element)
		}
	}
}
