// Package runtimestate keeps what is known about the container runtime: whether it answers, whether its network is up,
// which handlers and features it has. State holds the facts; Updater asks the runtime for them every few seconds.
//
// The node status reads State for the Ready condition, pod synchronization reads NetworkErrors, the sync loop stops
// taking updates while RuntimeErrors is not nil. The composition builds and runs it like this:
//
//	state := runtimestate.New(maxWaitForContainerRuntime)
//	state.AddHealthCheck("PLEG", pleg.Healthy)
//	updater := runtimestate.NewUpdater(runtimestate.UpdaterConfig{
//		Runtime:      runtime,             // the kuberuntime manager
//		State:        state,
//		OnFirstReady: startWhatNeedsTheRuntime,
//	})
//	updater.Run(ctx)                       // blocks until ctx ends
//
// The fast node status update at start-up may call updater.Update too, and calls updater.ExpectReady when it is
// through.
package runtimestate
