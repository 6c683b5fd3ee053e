// Package collect makes the eviction records of pods: it counts evictions as a sink of the eviction manager, and reads
// disruption budgets from the API server.
//
//	collector  the records, and the sink
//	budgets    disruption budgets by namespace, cached
package collect
