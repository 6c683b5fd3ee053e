// Package systemmemory is the rule of the eviction plugin system-memory-pressure-eviction-plugin: memory of the whole
// node is scarce although the signal memory.available may not say so yet. It is so when
//
//   - less memory is free than the distance between watermarks, the total times watermark_scale_factor in
//     ten-thousandths (kernel documentation, admin-guide/sysctl/vm): reclaimed pods;
//   - kswapd has reclaimed many pages per second for a time: reclaimed pods;
//   - tasks have been stalled on memory for a time (kernel documentation, accounting/psi), on the node and in the mean
//     of its pods: reclaimed pods first, all pods later.
//
// After a pod was proposed, none is for a time.
package systemmemory
