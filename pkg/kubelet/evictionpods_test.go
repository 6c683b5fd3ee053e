package kubelet

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
)

// startingAgent is an agent whose sync loop has added a static pod and one of the API server, whose other pods follow.
func startingAgent(t *testing.T) (*build, *testingclock.FakePassiveClock) {
	t.Helper()
	b := assembled(t, fake.NewClientset(), nil)
	now := testingclock.NewFakePassiveClock(time.Now())
	b.pressure.pods.clock = now
	for uid, source := range map[types.UID]string{"static": kubetypes.FileSource, "first": kubetypes.ApiserverSource} {
		b.pods.manager.AddPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{
			UID: uid, Name: string(uid), Namespace: "default",
			Annotations: map[string]string{kubetypes.ConfigSourceAnnotationKey: source},
		}})
	}
	return b, now
}

// checkKnown checks which pods the eviction manager knows.
func checkKnown(t *testing.T, b *build, when string, want ...types.UID) {
	t.Helper()
	var got []types.UID
	for _, pod := range b.pressure.pods.active() {
		got = append(got, pod.UID)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%s: pods %v are known, want %v", when, got, want)
	}
	for _, uid := range []types.UID{"first", "static"} {
		if _, known := b.pressure.pods.byUID(uid); known != slices.Contains(want, uid) {
			t.Errorf("%s: pod %s is found: %t, unlike in the list", when, uid, known)
		}
	}
}

// An agent starts under pressure, and its sync loop adds the pods of the API server one after the other. As long as
// only some are there, none is evicted: that would be one that does no harm.
func TestNoPodIsEvictedBeforeAllAreKnown(t *testing.T) {
	b, _ := startingAgent(t)
	checkKnown(t, b, "while pods are added", "static")
	b.sources.ready.AddSource(kubetypes.FileSource)
	checkKnown(t, b, "after those of a file were added", "static")
	b.sources.ready.AddSource(kubetypes.ApiserverSource)
	checkKnown(t, b, "after those of the API server were added", "first", "static")
}

// Pods that are known are evicted although the others are not added for a long time: the admission of one may wait for
// a device plugin that does not answer.
func TestAdmissionThatHangsDoesNotHoldUpEviction(t *testing.T) {
	b, now := startingAgent(t)
	checkKnown(t, b, "at first", "static")
	now.SetTime(now.Now().Add(addPatience - 1))
	checkKnown(t, b, "before the time is over", "static")
	now.SetTime(now.Now().Add(1))
	checkKnown(t, b, "afterwards", "first", "static")
}

// witness is a plugin that passes on which pods it is shown.
type witness chan []types.UID

func (w witness) EvictPods(ctx context.Context, v *plugin.View) (*arbiter.Demand, error) {
	var pods []types.UID
	for _, pod := range v.Pods {
		pods = append(pods, pod.UID)
	}
	select {
	case w <- pods:
	case <-ctx.Done():
	}
	return &arbiter.Demand{}, nil
}

func (witness) ThresholdMet(context.Context, *plugin.View) (*arbiter.Threshold, error) {
	return &arbiter.Threshold{}, nil
}

func (witness) TopEvictionPods(context.Context, *plugin.View, arbiter.Question) (*arbiter.Reply, error) {
	return &arbiter.Reply{}, nil
}

// A plugin that named the first pod of the API server while that is the only one would have it evicted later.
func TestPluginsAreShownNoPodBeforeAllAreKnown(t *testing.T) {
	b, _ := startingAgent(t)
	shown := make(witness)
	c, enabled := b.driverConfig(), v1alpha1.Default()
	enabled.Plugins.Eviction.InTree = []string{"*"}
	c.Options = plugin.OptionsFrom(enabled, false)
	c.Options.Period = time.Millisecond
	c.InTree = map[string]plugin.Plugin{"witness": shown}
	driver, err := plugin.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); driver.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	if pods := <-shown; slices.Contains(pods, "first") {
		t.Errorf("while pods are added it is shown %v", pods)
	}
	b.sources.ready.AddSource(kubetypes.ApiserverSource)
	for !slices.Contains(<-shown, "first") {
	}
}
