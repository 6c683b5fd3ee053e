// Package eviction keeps the resources of the node above thresholds: it collects stats, has package policy decide on
// them by the rules of package settings, and carries the decision out.
//
// One goroutine, that of Run, decides; it owns all state but the ledger. Collections, kills and node-level reclaim,
// which may take long, run in goroutines of their own and wake the loop when they end. So neither a slow file system
// nor a pod that does not stop delays the next decision.
//
//	stats      one collection of stats, by a Collector and a memorywatch.Reader
//	collecting the collection that is under way: how long the loop waits for it, and what it does without
//	pods       joins pods with their stats, as far as a decision can need them
//	loop       when to synchronize, and one round; package memorywatch reads memory between two
//	ledger     what was begun and is not over
//	act        evictions and node-level reclaim
//	round      a decision with what it was made from, and results: what becomes of its parts, under its number
//	notices    what of a round is worth telling users
//	sinks      events, log, metrics and what else receives rounds and results, each with a queue and a goroutine
//	admit      answers to pods that want to enter
package eviction
