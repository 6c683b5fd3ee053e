//go:build race

package podlifecycle

// boundedLength is how many events the histories have that are all tried; the race detector makes them slow.
const boundedLength = 4
