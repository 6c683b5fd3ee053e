// Package nodeshutdown stops the pods of the node in order when the machine goes down (KEP-2000, KEP-2712).
//
//	logind ── going down ──▶ Manager ──▶ node not Ready, no pod admitted
//	   ▲                        │
//	   │                        ├──▶ group by group, the lowest priority first: kill, await end and volumes
//	   └── lock released ◀──────┘
//
// As long as the agent holds a delay lock of logind, the machine waits for it, up to logind's InhibitDelayMaxSec.
// Package plan decides the groups; package logind speaks to logind. One goroutine owns the lock and everything that
// depends on announcements (watch.go); the pods are stopped beside it (stop.go), so that it hears at once when the
// machine does not go down after all.
//
// Where this differs from stock, and why: docs/adr/0011-node-shutdown.md.
package nodeshutdown
