// Package generator collects from the managers what a pod status is made of, has podstatus make it, and logs what was
// noted. The package comment of podstatus shows how the composition builds it.
package generator
