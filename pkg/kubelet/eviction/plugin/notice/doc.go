// Package notice writes a file for each pod that is given notice instead of being evicted.
//
// The name of a file has the namespace, the name and the UID of the pod, as those of the directories of logs below
// /var/log/pods have, and ends as the name of the files of Katalyst:
// <namespace>_<name>_<uid>.soft_eviction_notify.json. Namespaces and names contain no underscore. The file is JSON, a
// PluginNotice of the page /debug/plugins. It is replaced atomically, so that a reader finds all of it. It exists
// while the notice does; when the agent stops it stays until the next start.
package notice
