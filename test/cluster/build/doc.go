// Package build makes what a development cluster runs: binaries from Go
// modules, container images from files of this machine, and the few things
// that only the distribution's packages can give.
//
// Nothing is built twice: a binary that is not ours has a stamp beside it that
// names what it was built from.
package build
