//go:build !race

package podlifecycle

// boundedLength is the number of events of the histories of TestAllShortHistories.
const boundedLength = 5

// historyCount is the number of random histories of each property test.
const historyCount = "2000"
