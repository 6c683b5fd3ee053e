// Package housekeeping finds what is left of pods and has it removed: workers of pods that nobody wants any more, pods
// that only the runtime knows, mirror pods without a static pod, directories, cgroups, statuses, user IDs. The sync
// loop calls Cleaner.CleanUp every two seconds, and gives no updates to the pod workers meanwhile. Before every source
// has reported it calls Cleaner.RestartPods instead.
//
// It is the safety net below the pod workers: whatever they do for a pod in order, this package repeats for pods that
// they have lost, because the agent was down or the pod was deleted by force. So each task starts from what is really
// there (runtime, disk, cgroup tree) and removes only what belongs to no pod. When it is not known whether something is
// in use, it stays.
package housekeeping
