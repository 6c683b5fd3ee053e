//go:build !race

package eviction

// modelRuns is the number of runs of TestModelOfTheNode.
const modelRuns = 1000

// likeStock is the number of sequences of TestLikeStock.
const likeStock = 2000

// replays is the number of sequences of TestDecisionsFromWhatWasWritten.
const replays = 2000
