package rssoveruse

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
)

const mi = int64(1) << 20

var settings = Settings{Ratio: rule.Percent(105)}

// pod has a container for each request in MiB; 0 for none.
func pod(name string, requests ...int64) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Annotations: map[string]string{}}}
	for i, r := range requests {
		c := v1.Container{Name: fmt.Sprint(i)}
		if r > 0 {
			c.Resources.Requests = memory(r)
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

func memory(n int64) v1.ResourceList {
	return v1.ResourceList{v1.ResourceMemory: *resource.NewQuantity(n*mi, resource.BinarySI)}
}

func annotated(p *v1.Pod, key, value string) *v1.Pod {
	p.Annotations[key] = value
	return p
}

func override(ratio string) *v1.Pod {
	return annotated(pod("a", 100), EnhancementKey, fmt.Sprintf(`{"rss_overuse_threshold":"%s"}`, ratio))
}

// requested returns the pods that are requested when the resident set of all is that.
func requested(t *testing.T, resident int64, pods ...*v1.Pod) (list []string, notes []rule.Note) {
	t.Helper()
	f := &Facts{Pods: pods, Resident: map[types.UID]int64{}}
	for _, p := range pods {
		f.Resident[p.UID] = resident
	}
	found := Decide(f, &settings)
	if found.Threshold.Kind != arbiter.NotMet || found.Top != nil {
		t.Errorf("%+v: must have no threshold", found)
	}
	for _, d := range found.Pods {
		if d.Force || d.GraceSeconds != nil || d.Reason == "" {
			t.Errorf("%+v: must be soft, without a grace period and with a reason", d)
		}
		list = append(list, string(d.UID))
	}
	return list, found.Notes
}

// TestThreshold has the resident set at, just below and just above the threshold of each pod, which is given in bytes.
func TestThreshold(t *testing.T) {
	sidecar := pod("a", 60)
	sidecar.Spec.InitContainers = []v1.Container{{
		Name: "s", RestartPolicy: new(v1.ContainerRestartPolicyAlways),
		Resources: v1.ResourceRequirements{Requests: memory(40)},
	}}
	initial := pod("a", 60)
	initial.Spec.InitContainers = []v1.Container{{Name: "i", Resources: v1.ResourceRequirements{Requests: memory(100)}}}
	overhead := pod("a", 60)
	overhead.Spec.Overhead = memory(40)
	whole := pod("a", 0, 60)
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: memory(100)}
	for name, tc := range map[string]struct {
		pod       *v1.Pod
		threshold int64
	}{
		"one container":            {pod("a", 100), 105 * mi},
		"two containers":           {pod("a", 60, 40), 105 * mi},
		"sidecar":                  {sidecar, 105 * mi},
		"init container":           {initial, 105 * mi},
		"overhead":                 {overhead, 105 * mi},
		"request of the whole pod": {whole, 105 * mi},
		"reclaimed":                {annotated(pod("a", 100), arbiter.QoSLevelKey, "reclaimed_cores"), 105 * mi},
		"shared":                   {annotated(pod("a", 100), arbiter.QoSLevelKey, "shared_cores"), 105 * mi},
		"annotation without ratio": {annotated(pod("a", 100), EnhancementKey, `{"numa_binding":"true"}`), 105 * mi},
		"empty annotation":         {annotated(pod("a", 100), EnhancementKey, ""), 105 * mi},
		"annotation, greater":      {override("2"), 200 * mi},
		"annotation, less":         {override("0.5"), 50 * mi},
		"annotation with a number": {annotated(pod("a", 100), EnhancementKey, `{"rss_overuse_threshold":1.5}`), 150 * mi},
		"annotation, small steps":  {override("1.000001"), 100*mi + 104},
		"annotation, greatest":     {override("1000"), 100_000 * mi},
		"annotation in e notation": {override("12e-1"), 120 * mi},
		"threshold between bytes":  {override("0.333333"), 34952498}, // 34952498.3
		"a request of many digits": {pod("a", 100, 100, 100), 315 * mi},
		"a request below one":      {override("0.000001"), 104},
		"annotation with whitespace": {annotated(pod("a", 100), EnhancementKey, ` { "rss_overuse_threshold" : "1.2" } `),
			120 * mi},
	} {
		t.Run(name, func(t *testing.T) {
			for resident, want := range map[int64][]string{
				tc.threshold - 1: nil, tc.threshold: nil, tc.threshold + 1: {"a"}, 0: nil, 1 << 60: {"a"},
			} {
				if got, notes := requested(t, resident, tc.pod); !slices.Equal(got, want) || notes != nil {
					t.Errorf("resident set %d: %q, want %q; %v", resident, got, want, notes)
				}
			}
		})
	}
}

// TestLeftOut has pods that are never requested, however great their resident sets are.
func TestLeftOut(t *testing.T) {
	sidecar := pod("a", 60)
	sidecar.Spec.InitContainers = []v1.Container{{Name: "s", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
	for name, p := range map[string]*v1.Pod{
		"no request":              pod("a", 0),
		"container without":       pod("a", 100, 0),
		"sidecar without":         sidecar,
		"dedicated":               annotated(pod("a", 100), arbiter.QoSLevelKey, "dedicated_cores"),
		"no container":            pod("a"),
		"unknown level":           annotated(pod("a", 100), arbiter.QoSLevelKey, "others"),
		"ratio is a word":         override("many"),
		"ratio is empty":          override(""),
		"ratio is zero":           override("0"),
		"ratio is negative":       override("-1"),
		"ratio is infinite":       override("Inf"),
		"ratio is no number":      override("NaN"),
		"ratio is too great":      override("1000.1"),
		"ratio is in percent":     override("105%"),
		"ratio is a list":         annotated(pod("a", 100), EnhancementKey, `{"rss_overuse_threshold":["1"]}`),
		"ratio is null":           annotated(pod("a", 100), EnhancementKey, `{"rss_overuse_threshold":null}`),
		"annotation is no JSON":   annotated(pod("a", 100), EnhancementKey, `rss_overuse_threshold=1`),
		"annotation is cut":       annotated(pod("a", 100), EnhancementKey, `{"rss_overuse_threshold":"1`),
		"annotation is a list":    annotated(pod("a", 100), EnhancementKey, `[]`),
		"ratio with a long value": override(strings.Repeat("9", 10_000)),
	} {
		t.Run(name, func(t *testing.T) {
			got, notes := requested(t, 1<<60, p)
			if got != nil {
				t.Errorf("requested: %q", got)
			}
			says := strings.HasPrefix(name, "ratio") || strings.HasPrefix(name, "annotation")
			if says != (len(notes) == 1) {
				t.Fatalf("notes: %v", notes)
			}
			if says && (notes[0].Pod != "a" || !notes[0].Event || len(notes[0].Text) > 300) {
				t.Errorf("%+v", notes[0])
			}
		})
	}
	if found := Decide(&Facts{Pods: []*v1.Pod{pod("a", 1)}}, &settings); len(found.Pods) != 0 {
		t.Errorf("without a known resident set: %+v", found)
	}
	// A note does not come and go with the resident set: it would be reported each time.
	found := Decide(&Facts{Pods: []*v1.Pod{override("many")}}, &settings)
	if len(found.Pods) != 0 || len(found.Notes) != 1 {
		t.Errorf("without a known resident set, with an annotation that cannot be parsed: %+v", found)
	}
}

// TestOverTime: a pod that grows is requested from the round on in which it is above the threshold, and no longer when
// it has shrunk or was not read; a steady one never.
func TestOverTime(t *testing.T) {
	pods := []*v1.Pod{pod("grows", 100), pod("steady", 100)}
	var requestedIn []int
	for round, resident := range []int64{90, 100, 104, 105, 106, 110, -1, 110, 105, 90, 120} {
		f := &Facts{Pods: pods, Resident: map[types.UID]int64{"steady": 104 * mi, "grows": resident * mi}}
		if resident < 0 {
			delete(f.Resident, "grows")
		}
		for _, d := range Decide(f, &settings).Pods {
			if d.UID != "grows" {
				t.Errorf("round %d: %s is requested", round, d.UID)
			}
			requestedIn = append(requestedIn, round)
		}
	}
	if !slices.Equal(requestedIn, []int{4, 5, 7, 10}) {
		t.Errorf("requested in %v", requestedIn)
	}
}

// FuzzAnnotation: whatever the annotation, the pod is judged by a ratio that is allowed, or left out with a note.
func FuzzAnnotation(f *testing.F) {
	for _, text := range []string{"", "{}", `{"rss_overuse_threshold":"1.2"}`, `{"rss_overuse_threshold":1e-9}`, "null"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := annotated(pod("a", 100), EnhancementKey, text)
		ratio, err := ratioOf(p, settings.Ratio)
		if err == nil && ratio > maxRatio*1_000_000 {
			t.Errorf("ratio %v", ratio)
		}
		got, notes := requested(t, 1<<60, p)
		if (err != nil) != (len(notes) == 1) || (err == nil) != (len(got) == 1) {
			t.Errorf("%v: %v, %v", err, got, notes)
		}
	})
}
