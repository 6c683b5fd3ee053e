// Package records has what eviction plugins are given about the pods that they choose from: which pods of the same
// owner were evicted lately, and the disruption budget of the pod. It is the eviction record of Katalyst's protocol.
//
//	record   the record of a pod
//	history  our own evictions, by owner and hour
//	budget   which disruption budget counts for a pod
package records
