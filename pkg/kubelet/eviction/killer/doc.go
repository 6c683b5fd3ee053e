// Package killer evicts the pods that eviction plugins request through the API server: by the eviction subresource of
// policy/v1, which disruption budgets limit, or by deletion. An attempt ends when the API server has accepted the
// eviction. From then on the pod workers stop the pod because of its deletion timestamp.
//
// A pod whose eviction is not accepted waits and is tried again, for a limited time, and only as long as the
// eviction is requested by the same killer. A pod that waits takes no resource from the others: at most ten calls
// are under way at a time, and a pod that waits makes none.
package killer
