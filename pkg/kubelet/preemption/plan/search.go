package plan

import (
	"cmp"
	"slices"
)

// searchBudget bounds the branch and bound beyond ExactLimit candidates. 2^20 sets are the most there are at ExactLimit.
const searchBudget = 4_000

// solve returns the indices of the pods to stop, ascending, that is: the least important first.
func (p *problem) solve() []int {
	if p.met(p.need) {
		return nil
	}
	s := &search{p: p, best: p.greedy(), budget: searchBudget}
	if len(p.pods) <= ExactLimit {
		s.budget = 1 << (ExactLimit + 1)
	}
	s.sums()
	s.walk(len(p.pods)-1, slices.Clone(p.need), nil)
	return s.best
}

func (p *problem) met(need []int64) bool {
	for _, n := range need {
		if n > 0 {
			return false
		}
	}
	return true
}

// greedy takes everyone and then, from the most important down, gives back whoever is not needed. Within a tier the one whose
// loss is greatest is given back last when it is what allows to keep others: pods are given back by ascending size.
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
	var keep []int
	for _, i := range order {
		if fits(p.pods[i].amount, spare) {
			for k, a := range p.pods[i].amount {
				spare[k] -= a
			}
			continue
		}
		keep = append(keep, i)
	}
	slices.Sort(keep)
	return keep
}

func fits(amount, spare []int64) bool {
	for k, a := range amount {
		if a > spare[k] {
			return false
		}
	}
	return true
}

// search is a branch and bound over the pods from the most important to the least: first without the pod, then with it.
type search struct {
	p      *problem
	best   []int
	budget int
	// below[i][k] is the amount of resource k that pods 0..i have together.
	below [][]int64
}

func (s *search) sums() {
	s.below = make([][]int64, len(s.p.pods))
	acc := make([]int64, len(s.p.need))
	for i, it := range s.p.pods {
		for k, a := range it.amount {
			acc[k] += a
		}
		s.below[i] = slices.Clone(acc)
	}
}

// walk decides about pod i, with need still open and chosen (descending) taken so far.
func (s *search) walk(i int, need []int64, chosen []int) {
	if s.budget--; s.budget < 0 {
		return
	}
	if s.p.met(need) {
		s.offer(chosen)
		return
	}
	if i < 0 || !fits(need, s.below[i]) || s.hopeless(chosen) {
		return
	}
	s.walk(i-1, need, chosen)
	rest := slices.Clone(need)
	for k, a := range s.p.pods[i].amount {
		rest[k] = max(0, rest[k]-a)
	}
	s.walk(i-1, rest, append(chosen[:len(chosen):len(chosen)], i))
}

// offer takes the set when it is better than the best so far.
func (s *search) offer(chosen []int) {
	set := slices.Clone(chosen)
	slices.Reverse(set)
	if s.p.compare(set, s.best) < 0 {
		s.best = set
	}
}

// hopeless is true when the pods chosen so far (descending) already make every completion worse than the best set: they touch a
// tier more often than the best does, with all higher tiers equal.
func (s *search) hopeless(chosen []int) bool {
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

// compare orders two ascending sets as the doc comment of Choose says; negative when a is cheaper.
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
