//go:build !race

package podlifecycle

// boundedLength is how many events the histories have that are all tried.
const boundedLength = 5
