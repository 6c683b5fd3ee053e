// Package nodestatus registers the Node, updates its status, and returns the Node to other packages (View). Nothing
// else in the agent writes to the Node.
//
// # What it writes, and what not
//
// Each write of the status is a strategic merge patch of the status subresource against the Node from which the status
// was computed, so that it contains only differences. A patch never contains conditions of other owners (network
// plugins, problem detectors), their labels, annotations and taints, VolumesAttached, or extended resources that no
// device plugin and no reporter plugin of this node manages. The agent sets taints when it creates the Node, and after
// that only those of plugin conditions (TaintWriter). It resets only its own labels: the well-known defaults at
// registration, kubernetes.io/os and kubernetes.io/arch with each update, and what reporter plugins report.
//
// # Three ways to the API server
//
//   - The heartbeat: Updater.SyncNow, called by Run every UpdateFrequency. It patches when something changed, or when
//     ReportFrequency has passed since the last report.
//   - The fast path at start: every 100 ms until the node is Ready or two minutes have passed, so that a started node
//     becomes Ready as soon as possible.
//   - Pressure: Updater.PressureChanged notifies a goroutine of Run and does not block. The goroutine patches the three
//     pressure conditions and the plugin conditions, and nothing else, at most once a second. It does not wait for a
//     heartbeat that hangs in the runtime or in DNS.
//
// A write is computed from the lister's Node or from the response to the last own write, whichever is newer: the lister
// lags, and with a stale Node a condition would transition twice.
//
// # Plugin conditions
//
// Conditions with the prefix node.katalyst.kubewharf.io/ are those of eviction plugins (Config.PluginConditions). The
// agent owns the prefix: it removes a condition that no plugin reports any more. After a restart Restore has to hand
// the conditions on to the source of PluginConditions, which keeps them until the plugins have registered again.
//
// # Taints of plugin conditions
//
// NodeRestriction forbids a kubelet to change the taints of its own Node, so that the TaintWriter has a kubeconfig file
// with an identity of its own (config/rbac/node-taints.yaml). It writes with a JSON merge patch of spec.taints and the
// resource version of the Node from which package taints has decided, so that it never overwrites another's change.
// What the agent has added is recorded on disk before the Node is changed; everything else belongs to somebody else.
//
// # Fields of reporter plugins
//
// Labels, annotations and extended resources that reporter plugins report (Config.Reported) are written with requests
// of their own, strategic merge patches of the status subresource that have only these fields, the UID and the resource
// version. So an API server that refuses them (NodeRestriction, a policy) accepts the heartbeat nevertheless, and no
// change of others is overwritten unseen. Package nodestatus/reported decides. There is at most one write per change:
// changes within a second are one, five writes may follow each other at once, then one per Reported.Sustained; the
// newest content wins. After errors it waits from 1 s to 5 min; what was refused is tried again after 5 min, with one
// event.
//
// What the agent has written is recorded on disk before the Node is changed, and is removed when no plugin reports it
// any more; everything else belongs to somebody else. As long as it is not known what plugins report (after a start)
// everything stays: the heartbeat and the registration leave recorded resources alone, where stock would make
// allocatable equal to capacity, or reset them to zero. A resource that a device plugin has as well is that of the
// device plugin. A field that somebody else sets to another value is corrected once per heartbeat period.
//
// # Order
//
// The View is created before the parts that read the Node, the Updater after all parts whose state it reports. New
// completes the View: before that, methods of the View return an error for a Node that is not in the API server. A
// missing client must be a nil interface.
//
// RestoreAtStart must be called before the first query of the runtime, since eviction starts when the runtime is up,
// and before the sync loop. Run starts before the first query of the runtime as well, and also calls
// RuntimeUpdater.Update, which must therefore be safe for concurrent use. Run returns when its context and all its
// goroutines have ended. SyncNow may still be called then, with another context (a shutdown publishes NotReady).
//
// Restore is called at most once, with the conditions of the first Node that is read, and before a status is computed
// from it: pressure that was reported when the agent stopped is kept instead of being cleared. It is not called if the
// Node did not exist. RestoreAtStart calls it, unless the API server does not answer in time; then a goroutine of Run
// calls it, concurrently with everything else.
package nodestatus
