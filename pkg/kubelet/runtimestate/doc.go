// Package runtimestate stores the last known state of the container runtime: whether it is ready, whether its network
// is ready, and its handlers and features. Updater queries the runtime every few seconds and writes the State.
//
// nodestatus reads the State for the Ready condition, pod synchronization reads NetworkErrors, and the sync loop
// processes no updates while RuntimeErrors is not nil.
package runtimestate
