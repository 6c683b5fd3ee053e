// Package plan chooses the victims of a preemption: a pure function of the missing resources and the candidates.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Need is how much of each resource is missing, in the unit of the scheduler: milli-CPUs for cpu, bytes for memory and
// ephemeral-storage, a count for everything else.
type Need map[v1.ResourceName]int64

// Candidate is a pod that may be stopped for the preemptor. The caller decides which pods are candidates.
type Candidate struct {
	UID      types.UID
	Priority int32
	QOS      v1.PodQOSClass
	// Requests of the pod in the units of Need; resources that are not needed may be left out.
	Requests map[v1.ResourceName]int64
	// Terminating is true for a pod that is being stopped already: it costs nothing and is counted first.
	Terminating bool
}

// Victims is a plan: when all pods of Stop were stopped and all pods of Await have ended, the need is covered.
type Victims struct {
	// Await are the terminating pods that release something of the need, ordered by UID.
	Await []types.UID
	// Stop are the pods to stop, the least important first.
	Stop []types.UID
}

// Choose returns the cheapest set of candidates that covers the need, and false when no set does.
//
// One set is cheaper than another (as in stock, except for kubernetes/kubernetes#135857) if
//  1. it has fewer pods of the highest priority that differs, so that pods of the lowest priority are stopped first;
//  2. then, within each priority, it has fewer Guaranteed, then fewer Burstable, then fewer BestEffort pods;
//  3. then its pods request less of the needed resources, each relative to its need;
//  4. then its UIDs come first, so that the order is total.
//
// The result is optimal for up to ExactLimit candidates, and for more if the search ends within its budget; otherwise
// it is the best set that was found.
func Choose(need Need, candidates []Candidate) (Victims, bool) {
	p := newProblem(need, candidates)
	if !p.feasible() {
		return Victims{}, false
	}
	v := Victims{Await: p.await}
	for _, i := range p.solve() {
		v.Stop = append(v.Stop, p.pods[i].uid)
	}
	return v, true
}

// ExactLimit is the number of candidates up to which Choose always finds the optimum.
const ExactLimit = 20

// problem is the input of Choose as vectors over the needed resources, with the pods in ascending order of importance.
type problem struct {
	// need is what remains after the release of the terminating pods.
	need  []int64
	pods  []item
	await []types.UID
}

// item is a candidate as a vector.
type item struct {
	uid    types.UID
	tier   tier
	amount []int64
	// loss is the sum over the needed resources of requested ÷ needed, in millionths of the need.
	loss int64
}

// tier orders pods by importance: priority first, then QoS class.
type tier struct {
	priority int32
	qos      int
}

func (t tier) compare(o tier) int {
	return cmp.Or(cmp.Compare(t.priority, o.priority), cmp.Compare(t.qos, o.qos))
}

var qosRank = map[v1.PodQOSClass]int{v1.PodQOSBestEffort: 0, v1.PodQOSBurstable: 1, v1.PodQOSGuaranteed: 2}

func newProblem(need Need, candidates []Candidate) *problem {
	names, amounts := resources(need)
	p := &problem{need: amounts}
	full := slices.Clone(amounts)
	for _, c := range candidates {
		if c.Terminating {
			p.subtract(c, names)
			continue
		}
		it := item{uid: c.UID, tier: tier{c.Priority, qosRank[c.QOS]}, amount: vector(c.Requests, names)}
		for k, a := range it.amount {
			it.loss += relativeLoss(a, full[k])
		}
		if it.loss > 0 {
			p.pods = append(p.pods, it)
		}
	}
	slices.Sort(p.await)
	slices.SortFunc(p.pods, func(a, b item) int {
		return cmp.Or(a.tier.compare(b.tier), cmp.Compare(a.uid, b.uid))
	})
	return p
}

// subtract subtracts the requests of a terminating pod from the need.
func (p *problem) subtract(c Candidate, names []v1.ResourceName) {
	helps := false
	for k, a := range vector(c.Requests, names) {
		helps = helps || a > 0
		p.need[k] = max(0, p.need[k]-a)
	}
	if helps {
		p.await = append(p.await, c.UID)
	}
}

// feasible is true when stopping all candidates covers the need.
func (p *problem) feasible() bool {
	for k, n := range p.need {
		for _, it := range p.pods {
			n = max(0, n-it.amount[k])
		}
		if n > 0 {
			return false
		}
	}
	return true
}

// resources lists the needed resources and their amounts in a fixed order.
func resources(need Need) ([]v1.ResourceName, []int64) {
	var names []v1.ResourceName
	for name, amount := range need {
		if amount > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	amounts := make([]int64, len(names))
	for i, name := range names {
		amounts[i] = need[name]
	}
	return names, amounts
}

func vector(requests map[v1.ResourceName]int64, names []v1.ResourceName) []int64 {
	out := make([]int64, len(names))
	for i, name := range names {
		out[i] = max(0, requests[name])
	}
	return out
}

// relativeLoss is amount ÷ need in millionths, bounded so that sums over thousands of pods do not overflow.
func relativeLoss(amount, need int64) int64 {
	if need <= 0 || amount <= 0 {
		return 0
	}
	const scale, bound = 1e6, 1e12
	return int64(min(float64(amount)/float64(need)*scale+1, bound))
}

// First is the alphabetically first needed resource, empty if there is none.
func (n Need) First() v1.ResourceName {
	if names, _ := resources(n); len(names) > 0 {
		return names[0]
	}
	return ""
}

// String lists the resources in a fixed order.
func (n Need) String() string {
	names, amounts := resources(n)
	parts := make([]string, len(names))
	for i := range names {
		parts[i] = fmt.Sprintf("%s: %d", names[i], amounts[i])
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
