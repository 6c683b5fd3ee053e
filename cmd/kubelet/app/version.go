package app

import (
	"fmt"
	"io"
	"strings"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/version"
)

// unsetVersion is how a version starts that nobody set at link time.
const unsetVersion = "v0.0.0-"

// printVersion answers --version and --version=raw; any other value of the flag asks for nothing to be printed.
func printVersion(w io.Writer, flag string) bool {
	switch flag {
	case "true":
		fmt.Fprintf(w, "Kubernetes %s\n", version.Get())
	case "raw":
		fmt.Fprintf(w, "%#v\n", version.Get())
	default:
		return false
	}
	return true
}

// checkVersion refuses to run without a version: it is shown on the Node, and the API server, the scheduler and feature
// matching take an unset one for Kubernetes 0.0.
func checkVersion(info apimachineryversion.Info) error {
	if info.GitVersion == "" || strings.HasPrefix(info.GitVersion, unsetVersion) {
		return fmt.Errorf("this binary has no version (it says %q): "+
			"build it with make, which sets k8s.io/component-base/version.gitVersion at link time", info.GitVersion)
	}
	return nil
}
