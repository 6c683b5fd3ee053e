// Package trace writes decisions about pressure as records, and reads them again so that they can be made again.
//
//	describe  a decision with what it was based on, for people (debug/v1alpha1.PressureDecision)
//	encode    what the same decision can be made from again: pods, rules, snapshot, state
//	decode    the lines of a trace, which may come from anywhere
//
// A trace leaves out what decisions do not use: environments, commands, labels, annotations and the content of volumes.
package trace
