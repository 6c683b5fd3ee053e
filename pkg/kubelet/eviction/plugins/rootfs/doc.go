// Package rootfs has the rules of two eviction plugins about the root file systems of containers, that is what they
// write to their writable layers.
//
//   - rootfs-pressure-eviction-plugin: little is free on the file system with the writable layers. The pod that uses
//     most is a soft candidate.
//   - rootfs-overuse-eviction-plugin: a pod uses more than the threshold of its QoS level. The pod that exceeds it most
//     is a soft candidate.
//
// Both consider bytes and inodes, and have no effect until thresholds are set. Reclaimed pods come before others.
package rootfs
