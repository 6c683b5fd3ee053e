//go:build race

package policy

// requestSequences is the number of sequences of TestRandomRequests; the race detector makes them slow.
const requestSequences = 400
