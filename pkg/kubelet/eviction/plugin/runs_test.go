//go:build !race

package plugin

// histories is the number of random histories.
const histories = 5000
