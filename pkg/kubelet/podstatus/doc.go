// Package podstatus turns what the runtime reports about a pod into the status that the API server gets: container
// statuses, phase, conditions and addresses. It is a function of values: no clock, no feature gate, no logger, no I/O
// of its own. What must be looked up while a status is made (an image reference, a start error) comes in as small
// functions. Some of stock's helpers that it calls read the process's feature gates themselves, so Features must agree
// with those.
//
// Package generator collects the Input from the managers and calls Generate.
//
// The pod that is passed must carry its allocated resources, not the desired ones (allocation manager's
// UpdatePodFromAllocation; pod workers do that), because the allocated ones are what is reported and compared with.
// After each runtime synchronization podsync calls ReasonCache.Update with its result.
//
// # What is left to others
//
// The status manager sets status.observedGeneration, start time and transition times, keeps what other writers own
// (resource claim statuses, nominated node), and holds back a terminal phase while a container may still run.
// SortPodIPs is also what the downward API uses.
package podstatus
