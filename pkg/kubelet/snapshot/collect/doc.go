// Package collect reads what a snapshot is made from.
//
// A Collector reads the stats of the node and its pods from the stats summary, or from the parts of the summary when
// that fails, and detects the layout of file systems. A Memory reads memory from cgroup files and /proc/meminfo, on
// cgroup v1 and v2.
//
// Available memory is counted as stock counts it: a limit less the working set, which is usage less inactive file
// pages; snapshot.Counting says what else may be counted. Formulas and sources are in docs/pressure.md. The usage
// counter of a cgroup is exact at any time. Its memory.stat is not: at a growth of 200 MiB/s that of a parent has been
// seen to lag by hundreds of MiB, for up to two seconds. The kernel sums up a cgroup that is read if much has changed
// in it, and counts a change upwards only as far as a cgroup of which much has changed already (mm/memcontrol.c,
// memcg_rstat_updated). If that is so of a cgroup and not of its parent, since their counts were reset one after the
// other, the parent does not learn of changes until the former is read. So leaves are read before parents, and the
// cgroups of QoS classes before that of all pods.
package collect
