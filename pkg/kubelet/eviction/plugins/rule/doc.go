// Package rule has what the rules of the eviction plugins in the agent have in common: what a rule returns, the order
// in which it proposes pods, and exact comparisons. It is pure.
//
// A rule maps facts, settings and a state to a finding and the next state. The package plugins reads the facts, keeps
// the state and answers the calls of the driver.
package rule
