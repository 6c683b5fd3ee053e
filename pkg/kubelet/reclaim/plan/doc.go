// Package plan decides which unused images and dead containers are removed to free space on a node's file systems. It
// is pure: images, their usage, the need and the time are values. Package reclaim carries the decisions out.
package plan
