// Package arbiter settles what eviction plugins ask for: it validates their answers, measures how long their thresholds
// have been met, says which of them are to be asked for pods, merges the pods that several plugins name, and puts them
// in order. It is pure: Settle maps answers, pods, rules and a state to an outcome and the next state.
//
// The arbiter evicts no pod. Its requests become part of the next snapshot, and policy.Decide decides about them
// together with the node's own needs, so that there is one list of victims and one ledger.
//
//	answer      what plugins answer, as values
//	pods        which pods plugins may name
//	thresholds  how long thresholds have been met, and the questions that follow
//	asks        which pods are asked for, merged by pod
//	order       which of them go first
//	places      how many go at a time
//	notices     which are given notice instead
//	conditions  node conditions that plugins report
//	settle      all of it together
//
// Rows E1 to E24 in comments are the scenarios of docs/katalyst.md that they avoid.
package arbiter
