//go:build race

package eviction

// modelRuns is the number of runs of TestModelOfTheNode, which takes ten times as long under the race detector.
const modelRuns = 50

// likeStock is the number of sequences of TestLikeStock; make differential plays 20,000 without the race detector.
const likeStock = 500

// replays is the number of sequences of TestDecisionsFromWhatWasWritten.
const replays = 50
