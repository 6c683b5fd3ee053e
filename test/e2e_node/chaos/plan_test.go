package chaos

import (
	"reflect"
	"slices"
	"testing"
	"time"

	core "k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

var usual = Config{Pods: 24, Static: 6, Time: 2 * time.Minute}

const seeds = 200

func TestPlanIsAFunctionOfTheSeed(t *testing.T) {
	if !reflect.DeepEqual(Plan(7, usual), Plan(7, usual)) {
		t.Error("the same seed makes different plans")
	}
	if reflect.DeepEqual(Plan(7, usual), Plan(8, usual)) {
		t.Error("different seeds make the same plan")
	}
}

func TestPlanIsInTheOrderOfTimeAndEnds(t *testing.T) {
	for seed := range uint64(seeds) {
		plan := Plan(seed, usual)
		if !slices.IsSortedFunc(plan, func(a, b Action) int { return int(a.At - b.At) }) {
			t.Fatalf("seed %d: not in the order of time", seed)
		}
		if last := plan[len(plan)-1]; last.At > usual.Time {
			t.Errorf("seed %d: %v at %v", seed, last, last.At)
		}
	}
}

// TestPlanDoesEverything checks for any seed that a plan has every kind of action and the promised number of pods.
func TestPlanDoesEverything(t *testing.T) {
	for seed := range uint64(seeds) {
		counts, names := map[Kind]int{}, map[string]bool{}
		for _, action := range Plan(seed, usual) {
			counts[action.Kind]++
			if action.At < usual.Time/5 && (action.Kind == Create || action.Kind == WriteManifest) {
				names[action.Pod] = true
			}
		}
		for _, kind := range []Kind{Create, Delete, ForceDelete, Evict, WriteManifest, KillKubelet, KillRuntime, KillBoth} {
			if counts[kind] < 1 {
				t.Errorf("seed %d: %d times %s", seed, counts[kind], kind)
			}
		}
		if len(names) < usual.Pods+usual.Static {
			t.Errorf("seed %d: %d pods in the first fifth, want %d", seed, len(names), usual.Pods+usual.Static)
		}
	}
}

// TestPlanSettles computes how long each pod may take to stop.
func TestPlanSettles(t *testing.T) {
	for seed := range uint64(seeds) {
		shapes, created, ends := map[string]Shape{}, map[string]time.Duration{}, map[string]time.Duration{}
		for _, action := range Plan(seed, usual) {
			switch action.Kind {
			case Create:
				shapes[action.Pod], created[action.Pod] = action.Shape, action.At
				delete(ends, action.Pod)
			case Delete, Evict, Hasten, ForceDelete:
				shape := shapes[action.Pod]
				grace := action.Grace
				if grace == OwnGrace || action.Kind == ForceDelete {
					grace = shape.Grace
				}
				if action.Grace == 0 && action.Kind != ForceDelete {
					t.Errorf("seed %d: %v without a grace period", seed, action)
				}
				end := action.At + stopTime(shape, action.At-created[action.Pod] < handlesSignalsAfter, grace)
				if before, ok := ends[action.Pod]; ok {
					end = min(end, before)
				}
				ends[action.Pod] = end
			}
		}
		for name, end := range ends {
			if end > usual.Time+settleTime+5*time.Second {
				t.Errorf("seed %d: %s (%v) takes until %v", seed, name, shapes[name], end)
			}
		}
	}
}

// TestPodsAreValid validates pods as the API server does.
func TestPodsAreValid(t *testing.T) {
	seen := map[Body]int{}
	for seed := range uint64(seeds) {
		for _, action := range Plan(seed, usual) {
			pod := Build(action.Pod, action.Shape, "/notes")
			switch action.Kind {
			case Create:
				seen[action.Shape.Body]++
			case WriteManifest:
				pod = BuildStatic(action, "/notes")
			default:
				continue
			}
			// As admission does.
			pod.Namespace, pod.Spec.ServiceAccountName = "default", "default"
			corev1.SetObjectDefaults_Pod(pod)
			var internal core.Pod
			if err := corev1.Convert_v1_Pod_To_core_Pod(pod, &internal, nil); err != nil {
				t.Fatal(err)
			}
			options := validation.PodValidationOptions{AllowPodLifecycleSleepActionZeroValue: false}
			if errs := validation.ValidatePodCreate(&internal, options); len(errs) > 0 {
				t.Fatalf("seed %d: %v: %v", seed, action, errs.ToAggregate())
			}
		}
	}
	bodies := []Body{Idle, Stubborn, Succeeds, Fails, Crashes, InitNeverEnds, PostStartNeverEnds, VolumeMissing}
	for _, body := range bodies {
		if seen[body] == 0 {
			t.Errorf("no pod is ever %s", body)
		}
	}
}

func TestStaticPodsReferToNoAPIObjects(t *testing.T) {
	for seed := range uint64(seeds) {
		for _, action := range Plan(seed, usual) {
			if action.Kind != WriteManifest {
				continue
			}
			for _, volume := range BuildStatic(action, "/notes").Spec.Volumes {
				if volume.ConfigMap != nil || volume.Projected != nil {
					t.Fatalf("seed %d: %v has volume %s", seed, action, volume.Name)
				}
			}
		}
	}
}

func TestSlowedPlan(t *testing.T) {
	const factor = 6
	plan := Plan(7, usual)
	for i, slow := range Slowed(plan, factor) {
		want := plan[i]
		want.At, want.Down, want.Shape.Grace = factor*want.At, factor*want.Down, factor*want.Shape.Grace
		if want.Shape.ProbeSeconds *= factor; want.Grace != OwnGrace {
			want.Grace *= factor
		}
		if !reflect.DeepEqual(slow, want) {
			t.Errorf("got %+v, want %+v", slow, want)
		}
	}
	if !reflect.DeepEqual(plan, Plan(7, usual)) {
		t.Error("the plan itself was changed")
	}
}
