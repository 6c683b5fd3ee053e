// Package build builds what a development cluster runs: binaries from Go modules, container images from files of this
// machine, and packages of the distribution.
//
// Nothing is built twice: a binary that is not ours has a stamp file with everything from which it was built.
package build
