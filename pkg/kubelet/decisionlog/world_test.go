package decisionlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	evictionapi "k8s.io/kubernetes/pkg/kubelet/eviction/api"
	clocktesting "k8s.io/utils/clock/testing"

	debugv1alpha1 "github.com/plimsoll-project/plimsoll/pkg/apis/debug/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/policy"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

const mi, gi = 1 << 20, 1 << 30

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world makes rounds as the eviction manager does.
type world struct {
	t     testing.TB
	log   *Log
	clock *clocktesting.FakeClock
	rules *policy.Rules
	state policy.State
	facts []*snapshot.Facts
	// usage is that of each pod, in bytes.
	usage     []int64
	available int64
	// replaced: the state of the next round is not the one that the last decision has left.
	replaced bool
	// tune changes each snapshot; may be nil.
	tune   func(*snapshot.Snapshot)
	before []policy.Condition
	kept   int
}

// secret is in every field of a pod that a record must not have.
const secret = "hunter2"

func podObject(i int) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("pod-%03d", i), UID: types.UID(fmt.Sprintf("uid-%03d", i)),
			Labels: map[string]string{"label": secret},
			Annotations: map[string]string{
				"example.com/note": secret, policy.PreferenceAnnotation: "5", snapshot.AnnotationPrefix + "other": secret,
				policy.OptOutAnnotation: secret,
			},
		},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{
				Name: "main", Image: secret, Command: []string{secret}, Args: []string{secret}, WorkingDir: "/" + secret,
				Env:       []v1.EnvVar{{Name: secret, Value: secret}},
				EnvFrom:   []v1.EnvFromSource{{Prefix: secret}},
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64Mi")}},
			}},
			Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
				Secret: &v1.SecretVolumeSource{SecretName: secret}}}},
			ServiceAccountName: secret, NodeName: secret, Hostname: secret,
			ImagePullSecrets: []v1.LocalObjectReference{{Name: secret}},
		},
	}
}

func newWorld(t testing.TB, pods int, c Config) *world {
	c.Clock = clocktesting.NewFakeClock(start)
	if c.LimitBytes == 0 {
		c.LimitBytes = 8 << 20
	}
	c.Node = "n1"
	w := &world{t: t, clock: c.Clock.(*clocktesting.FakeClock), available: 8 * gi}
	w.log = New(c)
	w.rules = &policy.Rules{
		Thresholds: []policy.Threshold{{Signal: snapshot.MemoryAvailable,
			Value: evictionapi.ThresholdValue{Quantity: resource.NewQuantity(gi, resource.BinarySI)}}},
		PressureTransitionPeriod: 5 * time.Minute,
		Timing: policy.Timing{Period: 10 * time.Second, KillTime: 3 * time.Second, Settling: 5 * time.Minute,
			Patience: 30 * time.Second},
	}
	for i := range pods {
		w.facts = append(w.facts, snapshot.NewFacts(podObject(i), false))
		w.usage = append(w.usage, int64(100+i)*mi)
	}
	return w
}

// round makes one round after a time, and passes it to the log as the eviction manager does.
func (w *world) round(after time.Duration) *eviction.Round {
	w.clock.Step(after)
	now := w.clock.Now()
	s := &snapshot.Snapshot{Taken: now.Add(-1000 * time.Hour), WallTime: now, Signals: snapshot.Unobserved(),
		Layout: snapshot.Layout{Known: true}}
	s.Signals[snapshot.MemoryAvailable] = snapshot.Observation{Available: w.available, Capacity: 16 * gi, At: now}
	if w.tune != nil {
		w.tune(s)
	}
	all := !policy.Calm(s, w.rules) || w.log.Recorded(s)
	if all {
		for i, f := range w.facts {
			s.Pods = append(s.Pods, snapshot.Pod{Facts: f, Images: snapshot.Unknown, Usage: &snapshot.Usage{
				Memory: snapshot.Bytes(w.usage[i]), AnonymousMemory: snapshot.Bytes(w.usage[i]), PIDs: 3,
				MemoryDate: now.UnixNano(), LocalStorage: snapshot.Unknown,
				Containers: []snapshot.ContainerUsage{{Name: "main", Memory: snapshot.Bytes(w.usage[i]),
					WritableLayer: snapshot.FsUsage{Bytes: 4096, Inodes: 7}, Logs: snapshot.FsUsage{Bytes: 4096, Inodes: 1}}},
			}})
		}
	}
	r := &eviction.Round{Trigger: eviction.TriggerTimer, Snapshot: s, Rules: w.rules, State: new(w.state),
		Before: w.before, AllPods: all, StateReplaced: w.replaced}
	w.replaced = false
	r.Decision, w.state = policy.Decide(s, w.rules, w.state)
	w.before = slices.Clone(r.Decision.Conditions[:])
	if w.log.NeedsRound(r) {
		w.kept++
		w.log.Round(w.t.Context(), r)
	}
	return r
}

// evict makes the node run out of memory, so that a pod is evicted, and reports that it has ended.
func (w *world) evict() *eviction.Round {
	w.t.Helper()
	w.available = gi / 2
	for range 10 {
		r := w.round(10 * time.Second)
		if len(r.Decision.Victims) == 0 {
			continue
		}
		for _, kind := range []eviction.ResultKind{eviction.KillAccepted, eviction.PodStopped, eviction.PodReleased} {
			w.log.Result(w.t.Context(), &eviction.Result{Decision: r.Decision.Number, At: r.Snapshot.Taken, Kind: kind,
				Victim: &r.Decision.Victims[0], Evicted: true, Released: snapshot.Release{Memory: 77 * mi}})
		}
		return r
	}
	w.t.Fatal("no pod is evicted")
	return nil
}

func noSecret(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.Index(text, secret); i >= 0 {
		t.Errorf("%s has what it must not have: %s", what, text[max(0, i-60):min(len(text), i+60)])
	}
}

// listed returns the list of decisions that the query selects.
func listed(l *Log, q *Query) (list debugv1alpha1.PressureDecisionList, err error) {
	var text bytes.Buffer
	if err := l.WriteDecisions(&text, q); err != nil {
		return list, err
	}
	err = json.Unmarshal(text.Bytes(), &list)
	return list, err
}
