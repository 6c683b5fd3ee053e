// Package podworkers drives package podlifecycle: a goroutine per pod UID that carries out what the lifecycle of the
// pod commands and tells it what came of it. It decides nothing about a pod.
//
//	UpdatePod, KillPod, Retry,
//	SyncKnownPods                     ──event──► podlifecycle.Store ──commands──► carryOut
//	                                                  ▲                              │ Wake, Run, CancelSync, Hasten,
//	                                                  │ WorkTaken, Returned          ▼ Answer, Requeue, Forget …
//	                                              worker goroutine ◄─────────────────┘
//	                                                  │ Sync, Terminate, TerminateRuntimePod, CleanUp
//	                                                  ▼
//	                                              package podsync
//
// One lock (Workers.mu) makes an event, its commands and the updates they are about one step. It is held neither while
// an operation runs nor while the runtime is asked. The store has its own lock, taken inside; questions to the store
// never wait for a worker.
//
// A termination that the agent has asked for is kept on disk (terminations.go, package terminations). The first update
// of its pod after a restart becomes the request to go on with it.
//
// A worker whose operation failed goes on when the pod is due by the work queue. Then the sync loop sends the pod again
// (UpdatePod), or calls Retry if no source names it: the end of a pod waits for no source.
package podworkers
