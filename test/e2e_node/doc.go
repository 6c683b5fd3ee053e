// Package e2enode tests the kubelet on a real node: the real containerd, API
// server, scheduler and controller manager, on the kernel of this machine. The
// tests start all of it themselves and remove it afterwards.
//
// They need root and the build tag e2e. A machine that cannot run the parts
// makes them fail with a sentence that says why. Another kubelet than this
// repository's can be tested by PLIMSOLL_KUBELET=path. PLIMSOLL_CGROUP_ROOT=/name
// keeps the pods in a control group of that name, to run beside another kubelet.
//
// The chaos test does random things to 30 pods and kills kubelet and runtime
// under them. It prints what repeats its run: PLIMSOLL_CHAOS_SEED is a number,
// PLIMSOLL_CHAOS_TIME how long it goes on, two minutes by default.
//
// PLIMSOLL_SOAK=1 has some tests wait longer, and PLIMSOLL_LEAK_ROUNDS has
// TestOneLeakOneEviction repeat its leaks.
//
// Tests that change the node (pressure, restarts of the kubelet) run one after
// the other; all others run in parallel after them, each in its own namespace.
package e2enode
