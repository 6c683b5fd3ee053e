// Package collect reads what a snapshot is made from.
//
// A Collector reads the stats of the node and its pods from the stats summary, or from the parts of the summary when
// that fails, and detects the layout of file systems. A Memory reads memory from cgroup files and /proc/meminfo, on
// cgroup v1 and v2.
//
// Available memory is counted as stock counts it: a limit less the working set, which is usage less inactive file
// pages; snapshot.Counting says what else may be counted. Formulas and sources are in docs/pressure.md. The usage
// counter of a cgroup is exact at any time. Its memory.stat is not: the kernel sums it up lazily, and at a growth of
// 200 MiB/s that of a parent has been seen to lag by hundreds of MiB. Reading the files of the leaves makes the kernel
// sum them up, so leaves are read before parents.
package collect
