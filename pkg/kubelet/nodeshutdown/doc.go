// Package nodeshutdown stops the pods of the node in order when the machine shuts down (KEP-2000, KEP-2712).
//
//	logind ── PrepareForShutdown ──▶ Manager ──▶ node not Ready, no pod admitted
//	   ▲                                │
//	   │                                ├──▶ each group, the lowest priority first: kill, wait for containers and volumes
//	   └──────── lock released ◀────────┘
//
// While the agent holds a delay lock of logind, logind delays the shutdown, at most for its InhibitDelayMaxSec
// (systemd.io/INHIBITOR_LOCKS, logind.conf(5)). Package plan decides the groups; package logind is the D-Bus client.
// One goroutine owns the lock and handles the signals of logind (watch.go). Other goroutines stop the pods (stop.go),
// so that a cancelled shutdown takes effect at once.
//
// docs/adr/0011-node-shutdown.md has the differences from stock and their reasons.
package nodeshutdown
