// Package podstatus turns what the runtime reports about a pod into the status that the API server gets: container
// statuses, phase, conditions and addresses. It is a function of values: no clock, no feature gate, no logger, no I/O
// of its own. What must be looked up while a status is made (an image reference, a start error) comes in as small
// functions. Some of stock's helpers that it calls read the process's feature gates themselves, so Features must agree
// with those.
//
// # Who calls what
//
// Pod synchronization calls the Generator of the subpackage generator, which collects the Input from the managers,
// reads the feature gates once, calls Generate and logs the notes. The composition builds it like this and hands it to
// podsync as its Status:
//
//	gen := generator.New(generator.Config{
//		Statuses:        statusManager,             // status.Manager
//		Resizes:         statusManager,
//		Probes:          probeManager,              // prober.Manager
//		Devices:         containerManager,          // cm.ContainerManager
//		PodCgroups:      func() generator.PodCgroups { return containerManager.NewPodContainerManager() },
//		Images:          runtime,                   // the kuberuntime manager
//		RuntimeClasses:  runtimeClasses,            // nil in standalone mode
//		RuntimeHandlers: state.RuntimeHandlers,     // runtimestate.State
//		Reasons:         reasons,                   // NewReasonCache(), shared with podsync
//		HostIPs:         nodeUpdater.HostIPs,       // nil in standalone mode
//		NodeIPs:         deps.Identity.NodeIPs,
//		Evictors:        []generator.Evictor{activeDeadline},
//		Features:        generator.FeaturesFromGates(),
//	})
//	status := gen.Generate(ctx, pod, runtimeStatus, terminal)
//
// The pod that is passed must carry its allocated resources, not the desired ones (allocation manager's
// UpdatePodFromAllocation; pod workers do that), because the allocated ones are what is reported and compared with.
// After each runtime synchronization podsync calls ReasonCache.Update with its result.
//
// # What is left to others
//
// The status manager sets status.observedGeneration, start time and transition times, keeps what other writers own
// (resource claim statuses, nominated node), and holds back a terminal phase while a container may still run.
// SortPodIPs is also what the downward API uses.
package podstatus
