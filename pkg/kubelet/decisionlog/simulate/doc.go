// Package simulate makes the decisions of a trace again, with the same rules or with others, by policy.Decide.
//
//	simulate  the recorded decisions and those of the plan, record by record
//	world     what the plan has done to the node: pods that it evicted or spared
//	scenario  synthetic traces: leak, burst, many leaks, disk fill, fork bomb
//	result    both lists of evictions side by side
//
// With the same rules, the decisions are the recorded ones exactly. With others, the plan sees what was recorded, with
// these assumptions about what was not:
//
//   - The node is looked at when a record was made. The plan evicts no earlier than that.
//   - A pod that the plan evicts is gone after its grace period or Timing.KillTime, the longer of both. From then on
//     what the recorded pod uses is available in addition.
//   - A pod that the plan spares uses on what it used when it was evicted in reality, or, with GrowSpared, goes on
//     growing as it did then. It takes that from what is available.
//   - Node-level reclaim of the plan frees nothing; what it freed in reality is part of what was recorded.
//   - Nothing else reacts: other pods do what was recorded, and no pod is created in place of one that is evicted or
//     not.
package simulate
