// Package nodestatus owns the agent's Node object: it registers the node, keeps its status current, and answers what
// the agent knows of its own node. Nothing else in the agent writes to the Node.
//
// # What it writes, and what not
//
// Every write is a strategic merge patch of the status subresource against the node it was computed from, so that it
// names only what differs. Conditions of other owners (network plugins, problem detectors), labels, annotations and
// taints set by others, VolumesAttached and extended resources that no device plugin of this node manages never appear
// in a patch. Taints are given once, when the Node is created. Labels are repaired only where the agent is their
// source: the well-known set of defaults at registration, kubernetes.io/os and kubernetes.io/arch with every update.
//
// # Three ways to the API server
//
//   - The heartbeat: Updater.SyncNow, called by Run every UpdateFrequency. It patches when something changed, or when
//     ReportFrequency has passed since the last report.
//   - The fast path at start: every 100 ms until the node is Ready or two minutes have passed, so that a started node
//     becomes Ready in the moment it can.
//   - Pressure: Updater.PressureChanged rings a bell and returns at once; a goroutine of Run then patches the three
//     pressure conditions and nothing else, at most once a second. It does not wait for a heartbeat that hangs in the
//     runtime or in DNS.
//
// A write is computed from the newer of the lister's node and the answer to the last own write: the lister lags, and
// from a stale node a condition would transition twice.
//
// # Composition
//
// The View comes early, because volume host, admission and certificates need it; the Updater comes last, because it
// needs all the others. Making the Updater completes the View: until then a node that is not in the API server is an
// error.
//
//	lister, nodeHasSynced := nodestatus.StartLister(ctx, deps.Clients.Kube, name) // also without a client
//	view := nodestatus.NewView(nodestatus.ViewConfig{Name: name, Lister: lister, Client: kube})
//	machine, err := nodestatus.NewMachine(deps.Machine.CAdvisor)                  // error: stop
//	declared, err := nodestatus.DiscoverFeatures(runtimeFeatures)                 // with the gate NodeDeclaredFeatures
//	…
//	updater := nodestatus.New(nodestatus.Config{
//		View: view, Client: kube, Heartbeat: heartbeat, OnHeartbeatFailure: deps.Clients.OnHeartbeatFailure,
//		Registration: nodestatus.Registration{…}, Reporting: nodestatus.Reporting{…, DeclaredFeatures: declared.Names},
//		Machine: machine, Resources: cm, ContainerManager: cm, Runtime: containerRuntime, State: runtimeState,
//		RuntimeUp: runtimeUpdater, Pressure: evictionManager, Images: imageGCManager, Volumes: volumeManager,
//		Shutdown: shutdownManager, Startup: deps.Observability.NodeStartup, Recorder: recorder, Clock: clock.RealClock{},
//		Restore: evictionManager.Restore, OnStartupOver: runtimeUpdater.ExpectReady,
//	})
//
// A nil client must be a nil interface: convert a clientset only if it is there.
//
// What was built before the Updater reaches it through closures over its variable, which is set before anything runs:
//
//	eviction:  OnConditionTrue("node-status", func() { updater.PressureChanged() })
//	shutdown:  SyncNodeStatusFunc: func(ctx context.Context) { updater.SyncNow(ctx) }
//	predicate: lifecycle.NewPredicateAdmitHandler(view.CachedNode, …)
//	cm.Start:  node, err := view.Node(ctx); cm.Start(ctx, node, …, view.Node, …)
//	certificates: view.LastObservedAddresses; pod status, downward API, DNS: view.HostIPs
//	declared features admission:
//	  lifecycle.NewDeclaredFeaturesAdmitHandler(ndf.DefaultFramework, declared.Set, declared.Version)
//
// Order of running: UpdatePodCIDR with the configured pod CIDR; CheckCgroups; RestoreAtStart with a patience of some
// seconds, before the runtime is watched (the first answer of the runtime starts the eviction manager) and before the
// sync loop; then Run in a goroutine, before the runtime-up loop. Run also calls RuntimeUp.Update, which must therefore
// be safe to call concurrently. Run returns when its context has ended and all its goroutines have; SyncNow still works
// then, with another context (a shutdown publishes NotReady).
//
// Restore is called at most once, with the conditions of the first Node object that is read and before any status is
// computed from it: the pressure that was true when the agent stopped is taken over instead of being cleared. It is not
// called if the Node did not exist. It comes from RestoreAtStart unless the API server could not be asked in time; then
// it comes from a goroutine of Run while everything else is running, and must stand that.
package nodestatus
