//go:build race

package plugin

// histories is the number of random histories: fewer with the race detector, with which each takes longer.
const histories = 200
