//go:build race

package eviction

// modelRuns is the number of runs of TestModelOfTheNode, which takes ten times as long under the race detector.
const modelRuns = 100

// replays is the number of sequences of TestDecisionsFromWhatWasWritten.
const replays = 100
