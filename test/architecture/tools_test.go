package architecture

import (
	"strings"
	"testing"
)

// Code generators are of the version of the libraries whose conventions their output follows.
func TestGeneratorsMatchTheLibraries(t *testing.T) {
	library := required(t, "go.mod", "k8s.io/apimachinery")
	generator := required(t, "go.tools.mod", "k8s.io/code-generator")
	if library != generator {
		t.Errorf("k8s.io/apimachinery is %s and k8s.io/code-generator is %s", library, generator)
	}
}

// required returns the version of a module that a module file requires.
func required(t *testing.T, file, path string) string {
	t.Helper()
	for line := range strings.Lines(read(t, file)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == path {
			return words[1]
		}
	}
	t.Fatalf("%s does not require %s", file, path)
	return ""
}
