// Package numa boots real kernels with cgroup v2 and one NUMA node or several in an emulated machine. Its first process
// (command guest) has processes use memory of one NUMA node and CPUs, and has the eviction plugins in the agent read
// the kernel's files and decide. It shows what a machine with one NUMA node and cgroup v1 cannot.
//
// The machine has no disk, no network and no container runtime: pods are cgroups below /kubepods.
package numa
