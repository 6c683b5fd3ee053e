// Package e2enode tests the kubelet on a real node: the real containerd, API server, scheduler and controller manager,
// on the kernel of this machine. The tests start all of it themselves and remove it afterwards.
//
// They need root and the build tag e2e. On a machine that cannot run the parts they fail and name the reason.
//
// PLIMSOLL_KUBELET is the path of another kubelet to test. PLIMSOLL_CGROUP_ROOT=/name has the pods in a cgroup of that
// name, so that another kubelet can run on the machine. PLIMSOLL_CHAOS_SEED repeats a run of TestChaos, which logs its
// seed, and PLIMSOLL_CHAOS_TIME is the time of its actions, two minutes by default. PLIMSOLL_LEAK_ROUNDS is how often
// TestOneLeakOneEviction repeats its leaks, PLIMSOLL_LEAK_RATES=1,20,200 has their rates in MiB per second, and
// PLIMSOLL_GROWTH_ROUNDS is how often
// TestMemoryGrowthEvictsALeakBeforeTheThreshold repeats its runs. PLIMSOLL_PLUGIN_ROUNDS is how often
// TestKatalystPlugin repeats its scenarios; with it, the times that the tests of eviction plugins log must be within
// their limits, as those of reporter plugins (TestReporterPlugins). With PLIMSOLL_SOAK=1 some tests wait longer.
// PLIMSOLL_REPORTER_IDLE is how long TestReporterPlugins has an idle node: an hour in soak, else not at all.
//
// PLIMSOLL_TIME_FACTOR multiplies the limits of what tests await, for a machine that is slow. PLIMSOLL_GUEST names a
// file that tells the tests that they run in a virtual machine, whose control plane another machine runs (make
// e2e-vm-node).
//
// A test that has no meaning on some nodes says in the table needs what it needs of the node; it does not run where
// that is missing, and the run says so.
//
// Tests that change the node (pressure, restarts of the kubelet) run one after the other. All others run in parallel
// after them, each in its own namespace.
package e2enode
