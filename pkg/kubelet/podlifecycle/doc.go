// Package podlifecycle is a pure state machine for the lifecycle of one pod on this node, and the table of the states
// of all pods.
//
//	          Updated (create, update, sync)
//	Unknown ──────────────────────────────────► Known ── WorkerReady ──► Syncing ◄─┐ Returned: succeeded,
//	   │                                          │                      │  └─────┘ failed, cancelled
//	   │ already ended, agent restarted           │ deleted, killed,     │
//	   │                                          │ orphaned             │ deleted, killed, completed, orphaned
//	   │                                          ▼                      ▼
//	   │        runtime pod without config ──► Terminating ◄─────────────┘
//	   │                                          │ Returned: succeeded        (runtime pod: removed)
//	   │                                          ▼
//	   └──────────────────────────────────────► Terminated
//	                                              │ Returned: succeeded
//	                                              ▼
//	                                            Finished ── Reconciled: orphan or same UID created again ──► removed
//
// State.Next takes an event and the time, and returns the next state and the commands that follow from the event.
// Package podworkers executes the commands and reports their results as events; it decides nothing. Table holds the
// states of all pods, and the order in which static pods of one full name start. Store is a Table that several
// goroutines may use; the rest of the agent queries it (queries.go).
//
// Guarantees, checked by property tests: the phase never decreases; a grace period, once set, never increases; every
// waiter is notified exactly once unless it left; no pod is synced after its termination was requested; of static pods
// with one full name at most one is started and not finished.
package podlifecycle
