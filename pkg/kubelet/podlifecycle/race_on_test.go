//go:build race

package podlifecycle

// boundedLength is the number of events of the histories of TestAllShortHistories; the race detector makes them slow.
const boundedLength = 4
