//go:build race

package podlifecycle

// boundedLength is the number of events of the histories of TestAllShortHistories; the race detector makes them slow.
const boundedLength = 4

// historyCount is the number of random histories of each property test.
const historyCount = "400"
