// Package numamemory is the rule of the eviction plugin numa-memory-pressure-eviction-plugin: a NUMA node may be full
// while the others are not, so that pods that are bound to it are in trouble although the node has memory.
//
// Each NUMA node is judged by its free memory and the kernel's watermarks (/proc/zoneinfo): close to the watermark min,
// where allocations wait for direct reclaim, pods are evicted at once; close to the watermark low, where kswapd begins
// to reclaim, after a number of rounds. While there is little page cache to reclaim, which would thrash, pods are
// evicted earlier. Only pods with a noticeable share of that NUMA node are proposed. A NUMA node without watermarks is
// unknown.
package numamemory
