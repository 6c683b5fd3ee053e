//go:build !race

package policy

// requestSequences is the number of sequences of TestRandomRequests.
const requestSequences = 2000
