// Package policy decides what to do about a node that runs out of something. It is pure: Decide maps a snapshot, the
// rules and a state to a decision and the next state, and does nothing else. No clock, no I/O, no logger, no feature
// gate.
//
// The way through a decision, in the order of the files:
//
//	state       what one decision passes on to the next
//	threshold   what "met" means, with minimum reclaim as hysteresis
//	effective   which thresholds hold for the file system layout
//	grace       how long a threshold has been met; the grace period of soft thresholds
//	conditions  what the Node should say
//	need        what is starved, how much of it must come free, what is already coming
//	forecast    how fast pods grow, so that the need is not only that of this instant
//	rank        the order in which pods would be evicted: stock's, made total
//	choose      the fewest of them that cover the need
//	tempo       how many of those are evicted at once
//	serve       one need: wait, reclaim from the node, or evict
//	decide      all of it together
//
// Where a decision differs from that of the stock kubelet, the reason is an entry of
// DIFFERENCES.md in the folder above.
package policy
