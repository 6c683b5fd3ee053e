//go:build !race

package eviction

// modelRuns is the number of runs of TestModelOfTheNode.
const modelRuns = 1000
