package records

import (
	"cmp"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// SelectingBudget is a disruption budget with what it selects in its namespace.
type SelectingBudget struct {
	Name     string
	Selector labels.Selector
	Budget   Budget
}

// SelectingBudgets returns the budgets of a list. As in the API server, a budget without a selector selects no pod, one
// with an empty selector each pod of the namespace (policy/v1), and one whose selector is invalid is left out.
func SelectingBudgets(list []policyv1.PodDisruptionBudget) []SelectingBudget {
	budgets := make([]SelectingBudget, 0, len(list))
	for i := range list {
		selector, err := metav1.LabelSelectorAsSelector(list[i].Spec.Selector)
		if err != nil {
			continue
		}
		s := &list[i].Status
		budgets = append(budgets, SelectingBudget{
			Name: list[i].Name, Selector: selector,
			Budget: Budget{
				DisruptionsAllowed: s.DisruptionsAllowed, CurrentHealthy: s.CurrentHealthy,
				DesiredHealthy: s.DesiredHealthy, ExpectedPods: s.ExpectedPods,
			},
		})
	}
	return budgets
}

// BudgetFor returns the budget that counts for a pod with these labels, among those of its namespace; nil if none
// selects it. Of several it is the one that allows the fewest disruptions, then the first by name: the API server
// evicts no pod that more than one budget selects, and Katalyst's protocol has one budget for each pod.
func BudgetFor(pod labels.Set, budgets []SelectingBudget) *Budget {
	var chosen *SelectingBudget
	for i := range budgets {
		b := &budgets[i]
		if b.Selector.Matches(pod) && (chosen == nil || strictness(b, chosen) < 0) {
			chosen = b
		}
	}
	if chosen == nil {
		return nil
	}
	return new(chosen.Budget)
}

// strictness is negative if a counts before b. Names are unique in a namespace.
func strictness(a, b *SelectingBudget) int {
	return cmp.Or(cmp.Compare(a.Budget.DisruptionsAllowed, b.Budget.DisruptionsAllowed), cmp.Compare(a.Name, b.Name))
}
