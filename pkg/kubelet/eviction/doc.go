// Package eviction keeps the node above its thresholds: it observes, lets package policy decide, and carries the
// decision out.
//
// One goroutine, that of Run, decides; it owns all state but the ledger. Whatever can take long runs beside it and
// reports back by waking it: collecting figures, stopping pods, node-level reclaim. So a slow stat or a pod that will
// not die never keeps the manager from seeing the next emergency.
//
//	parse      configuration → thresholds
//	observe    figures and layout → snapshot.Snapshot
//	collecting what is under way to get them, and what becomes of it when it hangs
//	parts      as much of the figures as there is when the summary fails or hangs
//	pods       pods and their figures, as far as a decision can need them
//	gate       exact memory counters between two looks
//	loop       when to look, and one look
//	ledger     what was begun and is not over
//	act        evictions and node-level reclaim
//	round      a decision with what it was made from, and results: what becomes of its parts, under its number
//	notices    what of a round is worth telling users
//	sinks      events, log, metrics and what else receives rounds and results, each with a queue and a goroutine
//	admit      answers to pods that want to enter
package eviction
