//go:build race

package arbiter

// histories is the number of random histories: fewer with the race detector, with which each takes longer.
const histories = 300
