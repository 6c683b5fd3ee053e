// Package plan decides what is removed from a node to make room on its file systems: unused images, and containers that
// have ended. It is pure: what is there, who uses it, what is needed and the time are values, and so is the answer.
// Package reclaim carries it out.
package plan
