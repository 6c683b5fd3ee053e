// Package podworkers executes the commands of package podlifecycle, with one goroutine per pod UID, and reports the
// results as events. It decides nothing about a pod.
//
//	UpdatePod, KillPod, Retry,
//	SyncKnownPods                     ──event──► podlifecycle.Store ──commands──► execute
//	                                                  ▲                              │ Wake, Run, CancelSync, Hasten,
//	                                                  │ WorkerReady, Returned        ▼ NotifyWaiters, Requeue, Remove …
//	                                              worker goroutine ◄─────────────────┘
//	                                                  │ Sync, Terminate, TerminateRuntimePod, CleanUp
//	                                                  ▼
//	                                              package podsync
//
// Workers.mu makes an event, the execution of its commands and the change of the pending updates one atomic step. No
// goroutine holds it during an operation or a call to the runtime. The store has its own lock, which is taken inside;
// queries of the store never wait for a worker.
//
// A termination that the agent has requested is recorded on disk (terminations.go, package terminations). After a
// restart, the first update of the pod is replaced by a request that resumes the termination.
//
// A failed operation is repeated when the work queue returns the pod. The sync loop then sends the pod again
// (UpdatePod), or calls Retry if no source has it, so that a termination depends on no source.
package podworkers
