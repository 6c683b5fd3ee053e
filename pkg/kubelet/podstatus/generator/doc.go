// Package generator collects from the managers what a pod status is made of, has podstatus compute it, and logs the
// notes.
package generator
