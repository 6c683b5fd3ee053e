package arbiter

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// candidate is a pod that plugins ask for, with what all of them say about it.
type candidate struct {
	snapshot.Request
	pod   *Pod
	scope int
	// blocked: the API server did not accept the eviction the last time it was asked.
	blocked bool
}

// scopeRank is the order of scopes; all that are not named come last.
func scopeRank(scope string) int {
	switch scope {
	case forceScope:
		return 0
	case "memory":
		return 1
	case "cpu":
		return 2
	}
	return 3
}

// candidates merges the asks by pod (E15): force wins, then the shortest grace that is asked for with it; reasons are
// joined in the order of the plugins' names. Asks are in that order already.
func (s *settling) candidates() []candidate {
	asks, pods := s.next.Asks, s.pods
	byPod := map[types.UID]*candidate{}
	reasons := map[types.UID][]string{}
	for i := range asks {
		a := &asks[i]
		pod := pods[a.UID]
		if pod == nil {
			continue
		}
		reasons[a.UID] = append(reasons[a.UID], a.Plugin+": "+a.Reason)
		c, ok := byPod[a.UID]
		if !ok {
			byPod[a.UID] = &candidate{pod: pod, scope: scopeRank(a.Scope), Request: snapshot.Request{
				UID: a.UID, Plugins: []string{a.Plugin}, Scope: a.Scope, Forced: a.Force, GraceSeconds: a.GraceSeconds,
				Since: a.Since,
			}}
			continue
		}
		c.GraceSeconds = sooner(c.Forced, c.GraceSeconds, a.Force, a.GraceSeconds, pod.GraceSeconds)
		c.Forced = c.Forced || a.Force
		if rank := scopeRank(a.Scope); rank < c.scope {
			c.scope, c.Scope = rank, a.Scope
		}
		if a.Since.Before(c.Since) {
			c.Since = a.Since
		}
		if !slices.Contains(c.Plugins, a.Plugin) {
			c.Plugins = append(c.Plugins, a.Plugin)
		}
	}
	list := make([]candidate, 0, len(byPod))
	for uid, c := range byPod {
		c.Reason = bounded(strings.Join(reasons[uid], "; "), maxReason)
		c.Killer = s.rules.Killers.of(c.pod, c.Forced)
		c.blocked = c.pod.Blocked && c.Killer != snapshot.PodWorker
		list = append(list, *c)
	}
	slices.SortFunc(list, compareCandidates)
	return list
}

// of returns what evicts a pod. Its QoS level counts more than the kind of the request.
func (k *Killers) of(pod *Pod, forced bool) snapshot.Killer {
	if killer, ok := k.ByQoSLevel[pod.QoSLevel]; ok && pod.QoSLevel != "" {
		return killer
	}
	if forced {
		return k.Forced
	}
	return k.Soft
}

// compareCandidates is the order in which pods go. It is total, since a pod is in the list once:
//
//  1. forced before others
//  2. pods on reclaimed resources before others
//  3. lower priority
//  4. scope: force, memory, cpu, any other
//  5. asked for longest
//  6. UID
func compareCandidates(a, b candidate) int {
	return cmp.Or(
		trueFirst(a.Forced, b.Forced),
		trueFirst(a.pod.QoSLevel == ReclaimedCores, b.pod.QoSLevel == ReclaimedCores),
		cmp.Compare(a.pod.Priority, b.pod.Priority),
		cmp.Compare(a.scope, b.scope),
		a.Since.Compare(b.Since),
		cmp.Compare(a.UID, b.UID),
	)
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
