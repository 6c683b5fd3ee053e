// Package decisionlog keeps the decisions about pressure and what became of them: in memory, within a bound, and
// optionally in files. It serves the pages below /debug/pressure.
//
//	log      receives rounds and results of the eviction manager, admissions and preemption plans
//	changes  which rounds are kept: those that change something, and one in a minute
//	ring     the records in memory, the oldest of which are dropped
//	query    what the pages show
//	watch    clients that receive records as they are made
//	collector  gauges about the signals, computed when they are collected
//	disk     lines of the same records in compressed files
//
// Nothing here delays a decision: the goroutine that decides compares a few numbers, and everything else is done by
// that of the sink, which does not wait for clients or for the disk either.
package decisionlog
