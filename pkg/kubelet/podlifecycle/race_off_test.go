//go:build !race

package podlifecycle

// boundedLength is the number of events of the histories of TestAllShortHistories.
const boundedLength = 5
