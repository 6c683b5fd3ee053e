package app

import (
	"fmt"
	"io"
	"strings"

	apimachineryversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/version"
)

// unsetVersion is the prefix of the version if it was not set at link time.
const unsetVersion = "v0.0.0-"

// printVersion prints the version for --version and --version=raw, and returns whether it did.
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

// checkVersion returns an error for a binary without a version: the Node reports the version, and the API server, the
// scheduler and feature matching treat an unset one as Kubernetes 0.0.
func checkVersion(info apimachineryversion.Info) error {
	if info.GitVersion == "" || strings.HasPrefix(info.GitVersion, unsetVersion) {
		return fmt.Errorf("this binary has no version (it has %q): "+
			"build it with make, which sets k8s.io/component-base/version.gitVersion at link time", info.GitVersion)
	}
	return nil
}
