// Package kubelet puts the agent together and runs it. It holds no behaviour of its own.
//
// # The map
//
//	sources ─▶ syncloop ─▶ podworkers ─▶ podsync ─▶ stock's runtime, volume, status and probe managers
//	             │             │
//	             ▼             ▼
//	         admission     podlifecycle (the only truth about "may this pod have running containers?")
//	             ▲             ▲
//	         eviction ─────────┘ kills through podworkers; preemption too
//
//	podlifecycle   pure state machine of one pod, and the store that everybody asks
//	podworkers     a goroutine per pod that drives it
//	podsync        what "bring up", "take down" and "clean up" do, step by step
//	podstatus      runtime status → API status
//	containerspec  what a container is started with
//	housekeeping   what nobody owns any more: orphaned pods, directories, cgroups, mirror pods
//	eviction       node pressure: observe, decide (policy), act
//	preemption     room for critical pods
//	admission      who may start here
//	nodestatus     the Node object
//	volumehost     what volume plugins see of the agent
//	server         HTTP and gRPC
//	runtimestate   is the runtime up?
//	podview        which pods use the node
//	paths          every file and directory
//
// # Building and running
//
// New builds in the order of build.go; each step gets what the steps before it made. A few stock constructors start goroutines of their
// own (informers, sources, token and watch caches); nothing of ours does before Run. Run starts the components of run.go in order
// and stops them in reverse; a component that ends with an error stops the agent with that error.
package kubelet
