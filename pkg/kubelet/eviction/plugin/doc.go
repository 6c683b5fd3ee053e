// Package plugin calls eviction plugins and keeps what follows from their answers: requests to evict pods, which become
// part of the next snapshot, and conditions, which nodestatus publishes.
//
//	contract  what a plugin is, in the agent or behind a socket
//	options   which plugins are called, and how
//	driver    New, Run, and what others get from the driver
//	loop      rounds: when plugins are asked, and when their answers are settled
//	callers   the calls, each in a goroutine, with a time-out
//	settle    the arbiter, and what becomes of its outcome
//	notices   pods that are given notice instead of being evicted
//	sink      rounds and results of the eviction manager
//	restore   conditions of an earlier run
//	page      /debug/plugins
//
// A round begins each period, and when memory crosses a threshold. Each active plugin that has no call under way is
// asked for pods (EvictPods) and for its threshold (ThresholdMet). Answers are settled as they come, together with
// those that come at the same time: no plugin waits for one that hangs. A plugin that is still being called when the
// next round begins has not answered. When a threshold has been met for its grace period, the plugin is asked for pods
// (TopEvictionPods), beside the loop.
//
// Plugins in dry run have a state of the arbiter of their own: what they answer is counted, and has no effect, neither
// on pods nor on the order, the burst or the conditions of other plugins.
package plugin
