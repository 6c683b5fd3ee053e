// Package snapshot holds what the agent has observed about its node, as values.
//
// A Snapshot is taken once, is never changed afterwards, and is all that a decision about pressure may look at: every figure
// carries its time and, when it could not be obtained, the reason. An absent figure is "unknown": it is neither zero nor the
// worst possible value, and its absence says nothing about any other figure.
//
// This package is pure. It does no I/O and reads no clock; package collect reads the world.
package snapshot
