// Package podlifecycle is the life of one pod on this node as a pure state machine, and the table of all of them.
//
//	          Updated (create, update, sync)
//	Unknown ──────────────────────────────────► Known ── WorkTaken ──► Syncing ◄─┐ Returned: succeeded,
//	   │                                          │                      │  └─────┘ failed, cancelled
//	   │ already ended, agent restarted           │ deleted, killed,     │
//	   │                                          │ orphaned             │ deleted, killed, completed, orphaned
//	   │                                          ▼                      ▼
//	   │        runtime pod without config ──► Terminating ◄─────────────┘
//	   │                                          │ Returned: succeeded        (runtime pod: forgotten)
//	   │                                          ▼
//	   └──────────────────────────────────────► Terminated
//	                                              │ Returned: succeeded
//	                                              ▼
//	                                            Finished ── Reconciled: orphan or same UID wanted again ──► forgotten
//
// State.Next takes a state, an event and the time, and gives the next state and the commands that follow from it.
// Package podworkers carries commands out and reports what came of them as events; it decides nothing. Table keeps the
// states of all pods and what concerns more than one of them: the order in which static pods of one full name start.
// Store is a Table that many goroutines may use, and answers the questions of the rest of the agent (queries.go).
//
// Promises, held by property tests: the phase never goes back; a grace period, once set, only shrinks; every waiter is
// answered exactly once unless it left; nothing is synced after termination was requested; of static pods with one full
// name at most one is started and not finished.
package podlifecycle
