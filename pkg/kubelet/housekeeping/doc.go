// Package housekeeping removes leftovers of pods: workers of pods that are not configured any more, pods that only the
// runtime has, mirror pods without a static pod, directories, cgroups, statuses, user IDs. The sync loop calls
// Cleaner.CleanUp every two seconds, less often if a round takes long, and passes no updates to the pod workers
// meanwhile. Until all sources have reported it calls Cleaner.RestartPods instead.
//
// Pod workers clean up after their pods. This package does the same for pods without a worker, because the agent was
// not running or the pod was deleted by force. So each task begins with the existing state (runtime, disk, cgroups) and
// removes only what belongs to no pod. If a task cannot determine whether something is in use, it does not remove it.
//
// A pod can come back with the UID of an earlier one: a static pod whose manifest is moved away and back does. So a pod
// with a worker keeps its directory and its user IDs, and the removal of a directory or of a cgroup reserves the UID
// (Remover): a pod that comes back meanwhile starts after the removal.
package housekeeping
