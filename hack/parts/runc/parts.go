//go:build tools

// Package runc pins the version of runc that development clusters run.
package runc

import _ "github.com/opencontainers/runc"
