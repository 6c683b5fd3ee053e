//go:build !race

package arbiter

// histories is the number of random histories.
const histories = 2000
