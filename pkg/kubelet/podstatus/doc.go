// Package podstatus computes the status of a pod from the state in the runtime: container statuses, phase, conditions
// and addresses. It is a pure function: no clock, no feature gate, no logger, no I/O. Values that have to be looked up
// during the computation (an image reference, a start error) are returned by functions in the input. Some of stock's
// helpers read the feature gates of the process themselves, so Features must equal those.
//
// Package generator collects the Input from the managers and calls Generate.
//
// The pod in the input must have its allocated resources instead of the desired ones (UpdatePodFromAllocation of the
// allocation manager; the pod workers call it), because the status reports the allocated resources. After each
// synchronization with the runtime podsync calls ReasonCache.Update with the result.
//
// # What other packages do
//
// The status manager sets status.observedGeneration, start time and transition times, preserves fields of other writers
// (resource claim statuses, nominated node), and does not report a terminal phase while a container may still run. The
// downward API uses SortPodIPs too.
package podstatus
