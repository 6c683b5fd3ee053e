//go:build tools

// Package registry pins the image registry that the conformance suites pull
// from. It serves locally built images on loopback.
package registry

import _ "github.com/google/go-containerregistry/cmd/crane"
