// Package runtimestate keeps what is known about the container runtime: whether it answers, whether its network is up,
// which handlers and features it has. State holds the facts; Updater asks the runtime for them every few seconds.
//
// The node status reads State for the Ready condition, pod synchronization reads NetworkErrors, the sync loop stops
// taking updates while RuntimeErrors is not nil.
package runtimestate
