package podlifecycle

// minimumGrace in seconds is the least grace period, so that a container can always react to SIGTERM; as in stock.
const minimumGrace = 1

// effectiveGrace returns the grace period in seconds after a request with the given override. It is the shortest of
// those of the following that are set:
//
//  1. the grace period that was accepted before;
//  2. deletionGracePeriodSeconds, which the API server computes for the deletion;
//  3. the override of the request, which may shorten the grace period and not lengthen it.
//
// If none of them is set, it is terminationGracePeriodSeconds of the specification. A negative value is ignored: it
// stands for the pod's own grace period (kubernetes/kubernetes#118172).
func effectiveGrace(accepted int64, pod PodFacts, override *int64) int64 {
	grace, set := accepted, accepted != 0
	for _, request := range []*int64{pod.DeletionGrace, override} {
		if request == nil || *request < 0 {
			continue
		}
		if !set || *request < grace {
			grace, set = *request, true
		}
	}
	if !set && pod.SpecGrace != nil {
		grace = *pod.SpecGrace
	}
	return max(grace, minimumGrace)
}
