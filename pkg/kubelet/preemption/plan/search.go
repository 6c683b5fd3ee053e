package plan

import (
	"cmp"
	"slices"
)

// searchBudget bounds the number of branches for more than ExactLimit candidates. ExactLimit candidates have 2^20 sets.
const searchBudget = 4_000

// solve returns the indices of the pods to stop in ascending order, the least important first.
func (p *problem) solve() []int {
	if p.covered(p.need) {
		return nil
	}
	s := &search{p: p, best: p.greedy(), budget: searchBudget}
	if len(p.pods) <= ExactLimit {
		s.budget = 1 << (ExactLimit + 1)
	}
	s.computePrefixSums()
	s.branch(len(p.pods)-1, slices.Clone(p.need), nil)
	return s.best
}

func (p *problem) covered(need []int64) bool {
	for _, n := range need {
		if n > 0 {
			return false
		}
	}
	return true
}

// greedy starts with all pods and removes those that are not needed, the most important first; within a tier the one
// with the smallest loss first, so that a large pod that spares several small ones remains.
func (p *problem) greedy() []int {
	order := make([]int, len(p.pods))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := p.pods[a], p.pods[b]
		return cmp.Or(y.tier.compare(x.tier), cmp.Compare(x.loss, y.loss), cmp.Compare(y.uid, x.uid))
	})
	spare := make([]int64, len(p.need))
	for k, n := range p.need {
		spare[k] = -n
		for _, it := range p.pods {
			spare[k] += it.amount[k]
		}
	}
	var chosen []int
	for _, i := range order {
		if fits(p.pods[i].amount, spare) {
			for k, a := range p.pods[i].amount {
				spare[k] -= a
			}
			continue
		}
		chosen = append(chosen, i)
	}
	slices.Sort(chosen)
	return chosen
}

func fits(amount, spare []int64) bool {
	for k, a := range amount {
		if a > spare[k] {
			return false
		}
	}
	return true
}

// search is a branch and bound over the pods from the most important to the least important: for each pod it tries the
// sets without the pod first, then those with it.
type search struct {
	p      *problem
	best   []int
	budget int
	// prefixSums[i][k] is the amount of resource k that pods 0..i request together.
	prefixSums [][]int64
}

func (s *search) computePrefixSums() {
	s.prefixSums = make([][]int64, len(s.p.pods))
	acc := make([]int64, len(s.p.need))
	for i, it := range s.p.pods {
		for k, a := range it.amount {
			acc[k] += a
		}
		s.prefixSums[i] = slices.Clone(acc)
	}
}

// branch tries pods i..0 for the need that remains after the pods chosen so far (descending).
func (s *search) branch(i int, need []int64, chosen []int) {
	if s.budget--; s.budget < 0 {
		return
	}
	if s.p.covered(need) {
		s.consider(chosen)
		return
	}
	if i < 0 || !fits(need, s.prefixSums[i]) || s.cannotImprove(chosen) {
		return
	}
	s.branch(i-1, need, chosen)
	rest := slices.Clone(need)
	for k, a := range s.p.pods[i].amount {
		rest[k] = max(0, rest[k]-a)
	}
	s.branch(i-1, rest, append(chosen[:len(chosen):len(chosen)], i))
}

// consider keeps the set if it is cheaper than the best one so far.
func (s *search) consider(chosen []int) {
	set := slices.Clone(chosen)
	slices.Reverse(set)
	if s.p.compare(set, s.best) < 0 {
		s.best = set
	}
}

// cannotImprove is true when every set that contains the pods chosen so far (descending) is more expensive than the
// best one: they have more pods of one tier than the best set, with all higher tiers equal.
func (s *search) cannotImprove(chosen []int) bool {
	for at, i := range chosen {
		if at >= len(s.best) {
			return true
		}
		if c := s.p.pods[i].tier.compare(s.p.pods[s.best[len(s.best)-1-at]].tier); c != 0 {
			return c > 0
		}
	}
	return false
}

// compare orders two ascending sets by the rules of Choose; negative when a is cheaper.
func (p *problem) compare(a, b []int) int {
	for at := 1; at <= len(a) && at <= len(b); at++ {
		if c := p.pods[a[len(a)-at]].tier.compare(p.pods[b[len(b)-at]].tier); c != 0 {
			return c
		}
	}
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(p.loss(a), p.loss(b)), slices.Compare(a, b))
}

func (p *problem) loss(set []int) int64 {
	var sum int64
	for _, i := range set {
		sum += p.pods[i].loss
	}
	return sum
}
