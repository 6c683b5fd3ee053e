package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"pgregory.net/rapid"
)

const critical = 2_000_000_000

func TestLegacy(t *testing.T) {
	for _, tc := range []struct {
		total, critical time.Duration
		want            []Period
	}{
		{0, 0, nil},
		{30 * time.Second, 10 * time.Second, []Period{{0, 20}, {critical, 10}}},
		{30 * time.Second, 0, []Period{{0, 30}, {critical, 0}}},
		{30 * time.Second, 30 * time.Second, []Period{{0, 0}, {critical, 30}}},
		{10 * time.Second, 30 * time.Second, nil},
		{30500 * time.Millisecond, 10 * time.Second, []Period{{0, 20}, {critical, 10}}},
		{30 * time.Second, -time.Second, nil},
	} {
		if got := Legacy(tc.total, tc.critical); !slices.Equal(got, tc.want) {
			t.Errorf("%v, %v: %v, want %v", tc.total, tc.critical, got, tc.want)
		}
	}
}

func TestOrderedDoesNotModifyItsInput(t *testing.T) {
	in := []Period{{10, 1}, {0, 2}, {10, 3}}
	if got, want := Ordered(in), []Period{{0, 2}, {10, 1}, {10, 3}}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if !slices.Equal(in, []Period{{10, 1}, {0, 2}, {10, 3}}) {
		t.Errorf("the input is now %v", in)
	}
}

func TestFit(t *testing.T) {
	for _, tc := range []struct {
		granted time.Duration
		want    []Period
	}{
		{30 * time.Second, []Period{{0, 20}, {critical, 10}}},
		{time.Hour, []Period{{0, 20}, {critical, 10}}},
		{15 * time.Second, []Period{{0, 10}, {critical, 5}}},
		{5 * time.Second, []Period{{0, 3}, {critical, 2}}},
		{5900 * time.Millisecond, []Period{{0, 3}, {critical, 2}}},
		{0, []Period{{0, 0}, {critical, 0}}},
		{-time.Second, []Period{{0, 0}, {critical, 0}}},
	} {
		if got := Fit([]Period{{0, 20}, {critical, 10}}, tc.granted); !slices.Equal(got, tc.want) {
			t.Errorf("%v: %v, want %v", tc.granted, got, tc.want)
		}
	}
}

func somePeriods(t *rapid.T) []Period {
	return Ordered(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Period {
		return Period{Priority: rapid.Int32Range(-3, 9).Draw(t, "priority"),
			Seconds: rapid.Int64Range(0, 10_000).Draw(t, "seconds")}
	}), 0, 6).Draw(t, "periods"))
}

// The total of the fitted periods is the granted time, none is longer than configured, and a period that is longer than
// another one is not shorter afterwards, up to the rounding to seconds.
func TestFitIsProportional(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		periods := somePeriods(t)
		granted := time.Duration(rapid.Int64Range(0, 70_000).Draw(t, "granted")) * time.Second
		fitted := Fit(periods, granted)
		if got, want := Total(fitted), min(granted, Total(periods)); got != want {
			t.Fatalf("%v are used, want %v", got, want)
		}
		for i, a := range periods {
			if fitted[i].Priority != a.Priority || fitted[i].Seconds < 0 || fitted[i].Seconds > a.Seconds {
				t.Fatalf("%v became %v", a, fitted[i])
			}
			for j, b := range periods {
				if a.Seconds < b.Seconds && fitted[i].Seconds > fitted[j].Seconds+1 {
					t.Fatalf("%v became %v, and %v became %v", a, fitted[i], b, fitted[j])
				}
			}
		}
	})
}

func pod(uid string, priority *int32, grace *int64) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)},
		Spec: v1.PodSpec{Priority: priority, TerminationGracePeriodSeconds: grace}}
}

func somePods(t *rapid.T) []*v1.Pod {
	n := rapid.IntRange(0, 12).Draw(t, "pods")
	pods := make([]*v1.Pod, n)
	for i := range pods {
		priority := rapid.Ptr(rapid.Int32Range(-5, 11), true).Draw(t, "priority")
		grace := rapid.Ptr(rapid.Int64Range(0, 60), true).Draw(t, "grace")
		pods[i] = pod(fmt.Sprintf("%02d", i), priority, grace)
	}
	return pods
}

// naivePeriodIndex finds the period of a priority by the definition in the API documentation.
func naivePeriodIndex(periods []Period, priority int32) int {
	found := 0
	for i, p := range periods {
		if p.Priority == priority {
			return i
		}
		if p.Priority < priority {
			found = i
		}
	}
	return found
}

// Each pod is in exactly one group, that of its priority, whatever the order of the pods is.
func TestGroupsHaveEachPodOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		periods, pods := somePeriods(t), somePods(t)
		groups := Groups(periods, pods)
		if len(periods) == 0 {
			if groups != nil {
				t.Fatalf("groups without periods: %v", groups)
			}
			return
		}
		wanted := make([][]types.UID, len(periods))
		for _, pod := range pods {
			i := naivePeriodIndex(periods, priority(pod))
			wanted[i] = append(wanted[i], pod.UID)
		}
		var want []string
		for i, uids := range wanted {
			if len(uids) > 0 {
				want = append(want, fmt.Sprint(periods[i], uids))
			}
		}
		if got := describe(groups); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
		if shuffled := describe(Groups(periods, rapid.Permutation(pods).Draw(t, "permutation"))); !slices.Equal(shuffled,
			want) {
			t.Fatalf("in another order: %v, want %v", shuffled, want)
		}
		for _, g := range groups {
			for _, pod := range g.Pods {
				own := pod.Spec.TerminationGracePeriodSeconds
				if got := g.Grace(pod); got > g.Seconds || own != nil && got != min(*own, g.Seconds) || own == nil &&
					got != g.Seconds {
					t.Fatalf("grace %d of a pod with %v in a group with %d", got, own, g.Seconds)
				}
			}
		}
	})
}

func describe(groups []Group) (out []string) {
	for _, g := range groups {
		uids := make([]types.UID, 0, len(g.Pods))
		for _, pod := range g.Pods {
			uids = append(uids, pod.UID)
		}
		out = append(out, fmt.Sprint(g.Period, uids))
	}
	return out
}

func owned(kind string, policy v1.RestartPolicy) *v1.Pod {
	yes := true
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: kind, Controller: &yes}}},
		Spec:       v1.PodSpec{RestartPolicy: policy},
	}
}

func TestRestartsAfterShutdown(t *testing.T) {
	static := func(policy v1.RestartPolicy) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Annotations: map[string]string{kubetypes.ConfigSourceAnnotationKey: kubetypes.FileSource}},
			Spec: v1.PodSpec{RestartPolicy: policy},
		}
	}
	changed := func(pod *v1.Pod, change func(*v1.Pod)) *v1.Pod { change(pod); return pod }
	ofDaemonSet := func() *v1.Pod { return owned("DaemonSet", v1.RestartPolicyAlways) }
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		want bool
	}{
		"static":                    {static(v1.RestartPolicyAlways), true},
		"static, once":              {static(v1.RestartPolicyNever), true},
		"of a DaemonSet":            {ofDaemonSet(), true},
		"of another DaemonSet kind": {owned("DaemonSet", v1.RestartPolicyNever), false},
		"of a ReplicaSet":           {owned("ReplicaSet", v1.RestartPolicyAlways), false},
		"of a StatefulSet":          {owned("StatefulSet", v1.RestartPolicyAlways), false},
		"of a Job":                  {owned("Job", v1.RestartPolicyOnFailure), false},
		"without owner":             {&v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways}}, false},
		"owned, not controlled": {changed(ofDaemonSet(), func(p *v1.Pod) {
			p.OwnerReferences[0].Controller = nil
		}), false},
		"being deleted": {changed(ofDaemonSet(), func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }), false},
		"failed":        {changed(ofDaemonSet(), func(p *v1.Pod) { p.Status.Phase = v1.PodFailed }), false},
		"succeeded":     {changed(ofDaemonSet(), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }), false},
		"running":       {changed(ofDaemonSet(), func(p *v1.Pod) { p.Status.Phase = v1.PodRunning }), true},
	} {
		if got := RestartsAfterShutdown(tc.pod); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
