// Package race measures who is first when a pod fills memory faster than pods end: the kubelet, or the OOM killer of
// the kernel in the cgroup of all pods. It runs on a development cluster.
//
// In a run, a hog that ignores SIGTERM rests below an eviction threshold, beside small pods of each QoS class, until it
// is told to grow at a rate. A cell of the matrix is a kubelet, a rate, the headroom (what is left when the threshold
// is met), and whether page cache fills the cgroup of all pods. A run is won if the OOM killer was not called for the
// limit of a cgroup above the pod of the hog, and no other pod was restarted or changed.
//
//	cell       the matrix, and parts of it
//	record     a run as a line of JSON
//	observer   the usage of pods each millisecond
//	kernellog  OOM kills
//	pods       the pods of a run
//	runner     runs
//	judge      what a run shows
//	table      the table of all cells
//	plot       their picture
package race
