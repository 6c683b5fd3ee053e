// Package conditions is the reporter plugin eviction-plugin-conditions of the agent: it reports the conditions of the
// CustomNodeResource that eviction plugins report, as taints. A condition with the effect reclaimed_cores/NoSchedule
// becomes the taint node.katalyst.kubewharf.io/<name> with the effect NoSchedule for that QoS level, as with Katalyst's
// eviction manager. The plugin has no entry in the configuration: it is called while the CustomNodeResource is
// published.
package conditions
