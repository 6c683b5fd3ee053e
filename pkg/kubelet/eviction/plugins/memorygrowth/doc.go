// Package memorygrowth is the eviction plugin memory-growth. It requests the eviction of the pod above its memory
// request whose growth does most to exhaust the memory of the node, before a hard threshold is met.
//
// The growth is that of policy.MemoryGrowth, which decisions have only while settings.Options.ReportMemoryGrowth is
// set.
package memorygrowth
