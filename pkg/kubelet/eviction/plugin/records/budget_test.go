package records

import (
	"math/rand/v2"
	"reflect"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func budget(name string, allowed int32, selector *metav1.LabelSelector) policyv1.PodDisruptionBudget {
	return policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector},
		Status: policyv1.PodDisruptionBudgetStatus{
			DisruptionsAllowed: allowed, CurrentHealthy: 10, DesiredHealthy: 20, ExpectedPods: int32(name[0]),
		},
	}
}

func selects(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func TestBudgetFor(t *testing.T) {
	invalid := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "?"}}}
	list := func(budgets ...policyv1.PodDisruptionBudget) []policyv1.PodDisruptionBudget { return budgets }
	web := labels.Set{"app": "web"}
	for name, tc := range map[string]struct {
		budgets []policyv1.PodDisruptionBudget
		pod     labels.Set
		// want is the name of the budget that counts.
		want string
	}{
		"no budget":          {nil, web, ""},
		"one that matches":   {list(budget("a", 1, selects("web"))), web, "a"},
		"one that does not":  {list(budget("a", 1, selects("db"))), web, ""},
		"empty selector":     {list(budget("a", 1, &metav1.LabelSelector{})), nil, "a"},
		"no selector":        {list(budget("a", 1, nil)), web, ""},
		"invalid selector":   {list(budget("a", 1, invalid)), web, ""},
		"pod without labels": {list(budget("a", 1, selects("web"))), nil, ""},
		"one of two invalid": {list(budget("a", 0, invalid), budget("b", 1, selects("web"))), web, "b"},
		"fewest disruptions": {
			list(budget("a", 3, selects("web")), budget("b", 1, selects("web")), budget("c", 0, selects("db")),
				budget("d", 2, &metav1.LabelSelector{})), web, "b",
		},
		"as many, by name": {
			list(budget("b", 1, selects("web")), budget("a", 1, &metav1.LabelSelector{})), web, "a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want *Budget
			for _, b := range tc.budgets {
				if b.Name == tc.want {
					s := b.Status
					want = &Budget{s.DisruptionsAllowed, s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods}
				}
			}
			for range 5 {
				rand.Shuffle(len(tc.budgets), reflect.Swapper(tc.budgets))
				if got := BudgetFor(tc.pod, SelectingBudgets(tc.budgets)); !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
		})
	}
}
