// Package cpupressure is the rule of the eviction plugin cpu-pressure: while tasks of the node wait for CPUs, or the
// cgroup of all pods is throttled, for a time, the reclaimed pod that uses most CPU is a soft candidate. Other pods are
// never requested, so that nothing happens on a node without reclaimed pods.
//
// Pressure stall information of CPUs also has tasks that wait since their own cgroup is throttled (kernel
// documentation, accounting/psi, and sched-bwc): a pod at its own limit raises it although CPUs are idle. Therefore it
// counts only while CPUs are busy. Katalyst decides this in its CPU advisor, which is not a plugin.
package cpupressure
