package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// maxRequestMessage limits the message of an eviction that plugins request, in bytes.
const maxRequestMessage = 2048

// serveRequests adds the pods whose eviction plugins request. It comes after the needs of the node: a request that is
// made or waits changes nothing about those, and what its pod releases counts for them once the pod is terminating.
//
// A request is not served
//
//   - for a pod that is unknown or critical,
//   - for a pod that is terminating, unless it is forced and leaves the pod less time than it has,
//   - if it is not forced, while a hard need is starved or if the pod opted out of anything: scopes are the words of
//     plugins, so that no scope can be compared with a resource; if it is submitted it is withdrawn,
//   - while it is submitted, unless the pod is terminating: the API server is being asked already, or the agent has not
//     got yet what that has accepted,
//   - if it is not forced, in the same round as an earlier one that is not: those that had to wait go one by one. A
//     submitted one does not count as one of these.
//
// A pod that is a victim already keeps its cause and its killer, which is the pod workers; its grace period becomes
// that of the request if that is shorter. The pod workers also shorten the grace period of a pod that is
// terminating, whatever the killer of the request: the API server may be away, and a termination is protected by no
// disruption budget.
func (r *round) serveRequests() {
	s := r.snapshot
	if len(s.Requests) == 0 || r.rules.dryRun {
		return
	}
	pods := make(map[types.UID]*snapshot.Pod, len(s.Pods))
	for i := range s.Pods {
		pods[s.Pods[i].UID] = &s.Pods[i]
	}
	protected := r.rules.Protection.granted(s.Pods)
	starved := slices.ContainsFunc(r.decision.Needs, func(nd NeedDecision) bool { return nd.starved() })
	softServed := false
	for i := range s.Requests {
		q := &s.Requests[i]
		pod := pods[q.UID]
		if pod == nil || pod.Critical {
			continue
		}
		if !q.Forced && (starved || len(protected[pod.UID].optOut) > 0) {
			if q.Submitted {
				r.decision.Withdrawn = append(r.decision.Withdrawn, pod.UID)
			}
			continue
		}
		if r.shortenGrace(q, pod) || (!q.Forced && softServed) {
			continue
		}
		if r.serveRequest(q, pod) && !q.Forced {
			softServed = true
		}
	}
}

// starved reports whether a hard need is not covered by what terminations in progress release. Reclaims from the node
// do not count, since it is unknown what they release.
func (s *NeedDecision) starved() bool { return s.Hard && s.Outcome != AwaitRelease }

// shortenGrace applies the grace period of a request to a pod that is a victim already, and reports whether it is one.
func (r *round) shortenGrace(q *snapshot.Request, pod *snapshot.Pod) bool {
	victims := r.decision.Victims
	i := slices.IndexFunc(victims, func(v Victim) bool { return v.Pod.UID == pod.UID })
	if i < 0 {
		return false
	}
	victims[i].GraceSeconds = min(victims[i].GraceSeconds, q.Grace(pod.Grace()))
	return true
}

// serveRequest serves one request and reports whether the pod becomes a victim because of it.
func (r *round) serveRequest(q *snapshot.Request, pod *snapshot.Pod) bool {
	grace := q.Grace(pod.Grace())
	terminating, left := timeLeft(r.snapshot, pod)
	killer := q.Killer
	switch {
	case terminating && (!q.Forced || q.GraceSeconds == nil || grace >= int64(left/time.Second)):
		return false
	case terminating:
		killer = snapshot.PodWorker
	case q.Submitted:
		return false
	}
	r.decision.Victims = append(r.decision.Victims, Victim{
		Pod: pod, Cause: Cause{Kind: PluginRequest, Plugins: strings.Join(q.Plugins, ",")}, GraceSeconds: grace,
		Message: requestMessage(q), Expected: pod.Release(r.snapshot.Layout), Hasten: terminating, Killer: killer,
	})
	return true
}

// timeLeft reports whether the pod is terminating, and how much of its grace period is left; zero if that is unknown,
// or if no shorter grace period has an effect.
func timeLeft(s *snapshot.Snapshot, pod *snapshot.Pod) (terminating bool, left time.Duration) {
	for i := range s.InFlight {
		if f := &s.InFlight[i]; f.UID == pod.UID {
			if f.State != snapshot.Stopping {
				return true, 0
			}
			return true, max(0, f.Deadline.Sub(s.Taken))
		}
	}
	if pod.Terminating == nil {
		return false, 0
	}
	if pod.Terminating.Deadline.IsZero() {
		return true, 0
	}
	return true, max(0, pod.Terminating.Deadline.Sub(s.Taken))
}

// requestMessage returns the message of an eviction that plugins request.
func requestMessage(q *snapshot.Request) string {
	text := fmt.Sprintf("Eviction requested by plugin %s (scope %q): %s", strings.Join(q.Plugins, ", "), q.Scope, q.Reason)
	return beginning(strings.ToValidUTF8(text, "\uFFFD"), maxRequestMessage-2) + ". "
}

// beginning returns at most so many bytes of a valid text, without a part of a character.
func beginning(text string, bytes int) string {
	if len(text) <= bytes {
		return text
	}
	for !utf8.RuneStart(text[bytes]) {
		bytes--
	}
	return text[:bytes]
}
