// Package fence limits what a pod that is being evicted may still use, so that it cannot use up the node before it has
// ended. A fence is a limit on the cgroup of the pod: its present memory usage and some slack, or, under PID pressure,
// its present number of processes.
//
// The limit is recognisable without a record (see ours), so that an agent that starts finds what an earlier one has
// left. It is written by a goroutine of its own: a write to memory.limit_in_bytes (cgroup v1) or memory.max (v2) below
// the usage makes the kernel reclaim memory in the writer, which may take long, and holds up the removal of the cgroup.
// A signal ends that write, on v1 with the old limit in place. On v2 the new limit is in force from the beginning, and
// the kernel reacts to a signal only between two passes of reclaim. A pass may free all that is above the limit, that
// is, what the pod has added since its usage was read. If there is nothing to reclaim, the OOM killer ends the pod as a
// whole.
//
//	value    which limits are fences
//	file     a limit of a cgroup, as a file
//	fence    preparing, setting, reading back, restoring one fence
//	writer   the goroutine that writes, with its deadline
//	hit      whether a pod has used what the fence leaves
//	find     the fences on a pod, and their end, without a Fence
//	left     fences that an earlier run of the agent has left
//	oom      what the kernel log says about OOM kills in the pod
//	victims  which containers of a pod the kernel log names as OOM-killed
//
// See admin-guide/cgroup-v1/memory.rst, admin-guide/cgroup-v2.rst and cgroup-v1/pids.rst of the kernel.
package fence
