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
// # Order
//
// The View is made before the parts that read the Node, the Updater after all parts that it reports on. Making the
// Updater completes the View: until then a node that is not in the API server is an error. A client that is missing
// must be a nil interface.
//
// RestoreAtStart is called before the runtime is watched, since eviction starts with the first answer of the runtime,
// and before the sync loop. Run starts before the runtime is watched, and also calls RuntimeUp.Update, which must
// therefore be safe for concurrent use. Run returns when its context has ended and all its goroutines have; SyncNow
// still works then, with another context (a shutdown publishes NotReady).
//
// Restore is called at most once, with the conditions of the first Node object that is read and before any status is
// computed from it: the pressure that was true when the agent stopped is taken over instead of being cleared. It is not
// called if the Node did not exist. It comes from RestoreAtStart unless the API server could not be asked in time; then
// it comes from a goroutine of Run while everything else is running, and must stand that.
package nodestatus
