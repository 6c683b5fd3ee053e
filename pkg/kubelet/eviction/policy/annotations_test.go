package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// annotated sets annotations of a pod, except for empty ones.
func annotated(p snapshot.Pod, preference, optOut string) snapshot.Pod {
	for key, text := range map[string]string{PreferenceAnnotation: preference, OptOutAnnotation: optOut} {
		if text != "" {
			if p.Annotations == nil {
				p.Annotations = map[string]string{}
			}
			p.Annotations[key] = text
		}
	}
	return p
}

func TestCheckAnnotations(t *testing.T) {
	tests := []struct{ preference, optOut, says string }{
		{"", "", ""},
		{"-100", "memory", ""},
		{"100", "memory, nodefs,imagefs ,containerfs,pid", ""},
		{"101", "", `annotation pressure.plimsoll.dev/eviction-preference: "101": must be a whole number from -100 to 100`},
		{"much", "", `"much": must be a whole number`},
		{"1.5", "", "must be a whole number"},
		{"", "memory,everything", `annotation pressure.plimsoll.dev/opt-out: "memory,everything": must be a list`},
		{"", ",", "must be a list"},
	}
	here, elsewhere := Protection{Namespaces: []string{"ns"}}, Protection{Namespaces: []string{"x*"}}
	for _, tc := range tests {
		pod := spec{name: "p"}.object()
		pod.Annotations = annotated(spec{name: "p"}.pod(start), tc.preference, tc.optOut).Annotations
		err := here.CheckAnnotations(pod)
		if (err == nil) != (tc.says == "") || (err != nil && !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%q %q: %v, want %q", tc.preference, tc.optOut, err, tc.says)
		}
		if err := elsewhere.CheckAnnotations(pod); (err == nil) != (tc.preference+tc.optOut == "") ||
			(err != nil && !strings.Contains(err.Error(), `in namespace "ns", only in ["x*"]`)) {
			t.Errorf("%q %q, in another namespace: %v", tc.preference, tc.optOut, err)
		}
		if err := (&Protection{}).CheckAnnotations(pod); err != nil {
			t.Errorf("%q %q, without configuration: %v", tc.preference, tc.optOut, err)
		}
	}
}

func granted(p *Protection, pods ...snapshot.Pod) []types.UID {
	var list []types.UID
	for uid, w := range p.granted(pods) {
		if len(w.optOut) > 0 {
			list = append(list, uid)
		}
	}
	slices.Sort(list)
	return list
}

func TestOptingOutIsBounded(t *testing.T) {
	aged := func(p snapshot.Pod, age time.Duration) snapshot.Pod {
		p.Created = start.Add(-age)
		return p
	}
	pods := []snapshot.Pod{
		aged(annotated(spec{name: "old", request: 3 * gi}.pod(start), "", "memory"), time.Hour),
		aged(annotated(spec{name: "young", request: gi}.pod(start), "", "memory"), time.Minute),
		aged(annotated(spec{name: "important", request: 2 * gi, priority: 7}.pod(start), "", "memory"), time.Second),
		aged(annotated(spec{name: "twin-b"}.pod(start), "", "memory"), 0),
		aged(annotated(spec{name: "twin-a"}.pod(start), "", "memory"), 0),
		annotated(spec{name: "static", static: true}.pod(start), "", "memory"),
		annotated(spec{name: "broken"}.pod(start), "", "memory!"),
		spec{name: "silent"}.pod(start),
	}
	tests := []struct {
		name string
		p    Protection
		want string
	}{
		{"none without namespaces", Protection{MaxPods: 10, MaxMemory: 100 * snapshot.Bytes(gi)}, "[]"},
		{"another namespace", Protection{Namespaces: []string{"n", "nss", "x*"}, MaxPods: 10,
			MaxMemory: 100 * snapshot.Bytes(gi)}, "[]"},
		{"within the limits", Protection{Namespaces: []string{"n?"}, MaxPods: 10,
			MaxMemory: 100 * snapshot.Bytes(gi)}, "[important old twin-a twin-b young]"},
		{"number of pods", Protection{Namespaces: []string{"*"}, MaxPods: 4, MaxMemory: 100 * snapshot.Bytes(gi)},
			"[important old twin-a young]"},
		{"memory of pods, later ones with smaller requests fit",
			Protection{Namespaces: []string{"ns"}, MaxPods: 10, MaxMemory: 3 * snapshot.Bytes(gi)},
			"[important twin-a twin-b young]"},
		{"none", Protection{Namespaces: []string{"ns"}, MaxMemory: 3 * snapshot.Bytes(gi)}, "[]"},
	}
	for _, tc := range tests {
		if got := fmt.Sprint(granted(&tc.p, pods...)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
		slices.Reverse(pods)
		if got := fmt.Sprint(granted(&tc.p, pods...)); got != tc.want {
			t.Errorf("%s, the other way round: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestOptOutFollowsTheLayout: the resources of the annotation follow the layout; on a single device all file systems
// are the same.
func TestOptOutFollowsTheLayout(t *testing.T) {
	tests := []struct {
		word   string
		layout snapshot.Layout
		group  group
		want   bool
	}{
		{"memory", snapshot.Layout{}, memoryGroup, true},
		{"memory", snapshot.Layout{}, pidGroup, false},
		{"pid", snapshot.Layout{}, pidGroup, true},
		{"nodefs", snapshot.Layout{}, nodeBytesGroup, false},
		{"imagefs", layoutOf(false, false), nodeBytesGroup, true},
		{"imagefs", layoutOf(true, false), nodeBytesGroup, false},
		{"imagefs", layoutOf(true, false), imageInodesGroup, true},
		{"containerfs", layoutOf(true, false), imageBytesGroup, true},
		{"containerfs", layoutOf(true, true), nodeInodesGroup, true},
		{"nodefs", layoutOf(true, true), imageBytesGroup, false},
	}
	for _, tc := range tests {
		signals, err := optOutOf(annotated(spec{name: "p"}.pod(start), "", tc.word).Annotations)
		if err != nil {
			t.Fatal(err)
		}
		w := podAnnotations{optOut: signals}
		if got := w.optsOutOf(&need{group: tc.group}, tc.layout); got != tc.want {
			t.Errorf("%s, %+v, group %d: %v, want %v", tc.word, tc.layout, tc.group, got, tc.want)
		}
	}
}

func anyAnnotations(t *rapid.T, s *snapshot.Snapshot) {
	for i := range s.Pods {
		facts := *s.Pods[i].Facts
		facts.Annotations = map[string]string{}
		facts.Namespace = rapid.SampledFrom([]string{"ns", "nn", "other"}).Draw(t, "namespace")
		for key, values := range map[string][]string{
			PreferenceAnnotation: {"", "-100", "-1", "0", "5", "100", "x"},
			OptOutAnnotation: {"", "memory", "nodefs,imagefs", "memory,pid,nodefs,imagefs,containerfs", "pid,memory,nodefs",
				"?"},
		} {
			if text := rapid.SampledFrom(values).Draw(t, key); text != "" {
				facts.Annotations[key] = text
			}
		}
		s.Pods[i].Facts = &facts
	}
}

func anyProtection(t *rapid.T) Protection {
	return Protection{
		Namespaces: []string{"n*"}, MaxPods: 6 - rapid.IntRange(0, 6).Draw(t, "fewerPods"),
		MaxMemory: snapshot.Bytes((40 - rapid.Int64Range(0, 40).Draw(t, "lessMemory")) * 100 * mi),
		MaxDelay:  time.Duration(rapid.IntRange(0, 3).Draw(t, "maxDelay")) * 10 * time.Second,
	}
}

// TestAnnotationsAreIgnoredWithoutConfiguration: without configured namespaces annotations change no decision.
func TestAnnotationsAreIgnoredWithoutConfiguration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods, rules := anySpecs(t, 8), rulesOf(anyThresholds(t)...)
		var m1, m2 State
		for step := range 3 {
			plain := anySnapshot(t, start.Add(time.Duration(step)*15*time.Second), pods)
			annotated := *plain
			annotated.Pods = slices.Clone(plain.Pods)
			for i := range annotated.Pods {
				annotated.Pods[i].Facts = new(*plain.Pods[i].Facts)
			}
			anyAnnotations(t, &annotated)
			var d1, d2 Decision
			d1, m1 = Decide(plain, rules, m1)
			d2, m2 = Decide(&annotated, rules, m2)
			if got, want := fmt.Sprint(names(d2.Victims), d2.Needs), fmt.Sprint(names(d1.Victims), d1.Needs); got != want {
				t.Fatalf("%s, and with annotations %s", want, got)
			}
		}
	})
}

func TestOrderOfInputMakesNoDifferenceToAnnotations(t *testing.T) {
	granted := 0
	rapid.Check(t, func(t *rapid.T) {
		pods, rules := anySpecs(t, 10), rulesOf(anyThresholds(t)...)
		rules.Protection = anyProtection(t)
		var m1, m2 State
		for step := range 4 {
			a := anySnapshot(t, start.Add(time.Duration(step)*15*time.Second), pods)
			anyAnnotations(t, a)
			b := *a
			b.Pods = shuffled(a.Pods, rapid.Int64().Draw(t, "seed"))
			var d1, d2 Decision
			d1, m1 = Decide(a, rules, m1)
			d2, m2 = Decide(&b, rules, m2)
			if got, want := fmt.Sprint(names(d2.Victims), d2.Needs), fmt.Sprint(names(d1.Victims), d1.Needs); got != want {
				t.Fatalf("%s, and in another order %s", want, got)
			}
			if len(d1.Victims) > 0 {
				granted += len(rules.Protection.granted(a.Pods))
			}
		}
	})
	if granted == 0 {
		t.Error("no annotation was granted in any case that counted; the test shows nothing")
	}
}

// TestPreferenceKeepsPrioritiesAndOffenders: a preference moves a pod only among those that are equal in what ranks
// before it.
func TestPreferenceKeepsPrioritiesAndOffenders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anySnapshot(t, start, anySpecs(t, 10))
		anyAnnotations(t, s)
		n := &need{group: memoryGroup, signal: snapshot.MemoryAvailable, signals: []snapshot.Signal{snapshot.MemoryAvailable},
			hard: true}
		class := func(list []candidate) (classes []string) {
			for _, c := range list {
				classes = append(classes, fmt.Sprint(c.first, c.pod.Priority, c.known))
			}
			return classes
		}
		rules := rulesOf()
		rules.Protection = Protection{Namespaces: []string{"*"}}
		r := &round{snapshot: s, rules: rules, last: &rulesState{}, next: &rulesState{}, decision: &Decision{}}
		list := candidates(n, s, &pending{}, &growth{})
		before := class(list)
		list = r.applyAnnotations(n, list, &NeedDecision{})
		if after := class(list); !slices.Equal(before, after) {
			t.Fatalf("classes %v, with preferences %v", before, after)
		}
		for i := 1; i < len(list); i++ {
			a, b := &list[i-1], &list[i]
			if class(list[i-1 : i])[0] == class(list[i : i+1])[0] && a.preference < b.preference {
				t.Fatalf("%s with preference %d before %s with %d", a.pod.UID, a.preference, b.pod.UID, b.preference)
			}
		}
	})
}

// TestAllowedWords: the error for an invalid opt-out lists every allowed resource.
func TestAllowedWords(t *testing.T) {
	words := slices.Sorted(maps.Keys(optOutSignals))
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Annotations: map[string]string{OptOutAnnotation: "x"}}}
	all := Protection{Namespaces: []string{"*"}}
	for _, word := range words {
		if err := all.CheckAnnotations(pod); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name %s", err, word)
		}
	}
}
