// Package policy decides what to do about a node that runs out of a resource. It is pure: Decide maps a snapshot, the
// rules and a state to a decision and the next state, without a clock, I/O, a logger or feature gates.
//
// The steps of a decision, in the order in which to read the files:
//
//	state       what one decision passes on to the next
//	threshold   when a threshold is met, with minimum reclaim as hysteresis
//	effective   which thresholds apply to the layout of the file systems
//	grace       how long a threshold has been met; the grace period of soft thresholds
//	conditions  the node conditions
//	need        how much of which resource must come free
//	pending     how much of that terminations in progress release
//	forecast    how fast memory usage grows, so that needs include growth
//	rank        the order in which pods would be evicted: stock's, made total
//	choose      the fewest of them that cover the need
//	pacing      how many of those are evicted in one round
//	serve       one need: wait, reclaim from the node, or evict
//	memorygrowth  the report of how fast memory usage grows
//	decide      all of it together
//
// Beside these: annotations and protect (annotations of pods), localstorage (limits of pods on local storage),
// requested (requests of eviction plugins), dryrun, admit (admission under pressure), message (the text of an
// eviction), and explain (rankings and states of thresholds, for people).
//
// Each difference from a decision of the stock kubelet has an entry in DIFFERENCES.md in the folder above.
package policy
