package podlifecycle

// minimumGrace in seconds: a container always gets a moment to end by itself.
const minimumGrace = 1

// effectiveGrace returns the grace period in seconds after a request with the given override. The first of these that
// is set counts, then only what is shorter:
//
//  1. what was accepted before;
//  2. the API server's deletion grace period: when it is there it was computed for exactly this deletion;
//  3. the override of the request: the agent may hurry, not dawdle;
//  4. if there is none of these, what the specification wishes.
//
// A negative value means "the pod's own" and is no request (kubernetes/kubernetes#118172).
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
