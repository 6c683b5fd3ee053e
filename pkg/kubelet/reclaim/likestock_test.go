package reclaim

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/metrics/testutil"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	stock "k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/kubernetes/pkg/kubelet/metrics"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
)

//go:embed DIFFERENCES.md
var differences string

const (
	neverUsed  = "an image that was never used is as old as its detection"
	ageFails   = "the age of one image does not stop the rest"
	notMissing = "nothing is removed if nothing is missing"
)

// stockRuntime is a world with the interface that stock's manager needs.
type stockRuntime struct {
	kubecontainer.Runtime
	w *world
}

func (s stockRuntime) ListImages(ctx context.Context) ([]kubecontainer.Image, error) {
	return s.w.ListImages(ctx)
}

func (s stockRuntime) RemoveImage(ctx context.Context, image kubecontainer.ImageSpec) error {
	return s.w.RemoveImage(ctx, image)
}

func (s stockRuntime) GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error) {
	return s.w.GetPods(ctx, all)
}

func (s stockRuntime) GetContainerStatus(
	ctx context.Context, uid types.UID, id kubecontainer.ContainerID,
) (*kubecontainer.Status, error) {
	return s.w.GetContainerStatus(ctx, uid, id)
}

// collector is implemented by both managers.
type collector interface {
	GarbageCollect(ctx context.Context, began time.Time) error
}

// comparison is one random node, of which two managers collect the images.
type comparison struct {
	*rand.Rand
	policy       Policy
	theirs, ours *world
	stock, own   collector
	began        time.Time
	// detected are the times at which images were first detected, used those that were ever in use.
	detected map[string]time.Time
	used     map[string]bool
	next     int
	rules    map[string]bool
}

func newComparison(t *testing.T, seed int64, mutate func(*Config)) *comparison {
	p := &comparison{
		Rand: rand.New(rand.NewSource(seed)), theirs: newWorld(), ours: newWorld(), began: time.Now(),
		detected: map[string]time.Time{}, used: map[string]bool{}, rules: map[string]bool{},
	}
	p.policy.HighPercent = 50 + p.Intn(45)
	p.policy.LowPercent = max(0, p.policy.HighPercent-p.Intn(30))
	p.policy.Images.MinAge = time.Duration(p.Intn(600)) * time.Second
	if p.Intn(4) == 0 {
		p.policy.Images.MaxAge = time.Duration(10+p.Intn(3000)) * time.Second
	}
	var err error
	p.stock, err = stock.NewImageGCManager(stockRuntime{w: p.theirs}, p.theirs, nil, p.theirs,
		&v1.ObjectReference{Kind: "Node"}, stock.ImageGCPolicy{
			HighThresholdPercent: p.policy.HighPercent, LowThresholdPercent: p.policy.LowPercent, MinAge: p.policy.Images.MinAge,
			MaxAge: p.policy.Images.MaxAge,
		}, noop.NewTracerProvider())
	if err != nil {
		t.Fatal(err)
	}
	c := p.ours.config()
	c.Policy = p.policy
	c.Features = FeaturesFrom(utilfeature.DefaultFeatureGate)
	if mutate != nil {
		mutate(&c)
	}
	if p.own, err = New(c); err != nil {
		t.Fatal(err)
	}
	return p
}

// advance advances the time and changes the node. At most one image is added at a time, so that stock's order has no
// ties.
func (p *comparison) advance() {
	time.Sleep(time.Duration(1+p.Intn(900)) * time.Second)
	change := func(f func(w *world)) { f(p.theirs); f(p.ours) }
	if p.Intn(4) > 0 {
		p.next++
		i := newImage(fmt.Sprintf("%02d", p.Intn(90)+p.next*100), p.Int63n(200))
		i.Pinned, i.used = p.Intn(12) == 0, i.used*int64(1+p.Intn(2))/2
		p.detected[i.ID] = time.Now()
		change(func(w *world) { w.images = append(w.images, i) })
	}
	// The two worlds differ only by a rule, after which the sequence ends.
	if n := len(p.ours.images); n > 0 {
		name, of := fmt.Sprint(p.Intn(5)), p.ours.images[p.Intn(n)].ID
		running := p.Intn(3) == 0
		change(func(w *world) {
			w.pods = slices.DeleteFunc(w.pods, func(pod *kubecontainer.Pod) bool { return string(pod.ID) == name })
			if running {
				w.addContainer(types.UID(name), "c", strings.TrimPrefix(of, "sha256:"), 0)
			}
		})
	}
	system, broken := int64(p.Intn(1000)), p.Intn(40) == 0
	change(func(w *world) {
		w.system = system
		clear(w.fails)
		if broken && len(w.images) > 0 {
			w.fails[w.images[0].ID] = errors.New("busy")
		}
	})
}

// matchRules records the rules that apply to the input.
func (p *comparison) matchRules() {
	rule := func(name string) {
		if !strings.Contains(differences, "## "+name+"\n") {
			panic("not in DIFFERENCES.md: " + name)
		}
		p.rules[name] = true
	}
	for _, pod := range p.ours.pods {
		for _, c := range pod.Containers {
			p.used[c.ImageID] = true
		}
	}
	aging := p.policy.Images.MaxAge > 0 && time.Since(p.began) > p.policy.Images.MaxAge
	for _, i := range p.ours.images {
		if aging && !p.used[i.ID] && time.Since(p.detected[i.ID]) <= p.policy.Images.MaxAge {
			rule(neverUsed)
		}
		if aging && p.ours.fails[i.ID] != nil {
			rule(ageFails)
		}
	}
	stats, _, _ := p.ours.ImageFsStats(context.Background())
	capacity, available := int64(*stats.CapacityBytes), int64(*stats.AvailableBytes)
	if 100-int(available*100/capacity) >= p.policy.HighPercent &&
		capacity*int64(100-p.policy.LowPercent)/100 <= available {
		rule(notMissing)
	}
}

// collect describes the effects of one collection by a manager.
func (p *comparison) collect(c collector, w *world) string {
	counts := func() (sum [2]float64) {
		for i, reason := range []string{
			stock.ImageGarbageCollectedTotalReasonAge, stock.ImageGarbageCollectedTotalReasonSpace,
		} {
			sum[i], _ = testutil.GetCounterMetricValue(metrics.ImageGarbageCollectedTotal.WithLabelValues(reason))
		}
		return sum
	}
	w.removed, w.events = nil, nil
	before := counts()
	err := c.GarbageCollect(context.Background(), p.began)
	after := counts()
	return fmt.Sprintf("removed %q, error %v, events %q, by age %v, for space %v", w.removed, err != nil, w.events,
		after[0]-before[0], after[1]-before[1])
}

// runComparison returns the first difference that no rule explains, and the rules that applied.
func runComparison(t *testing.T, seed int64, mutate func(*Config)) (difference string, rules map[string]bool) {
	synctest.Test(t, func(t *testing.T) {
		p := newComparison(t, seed, mutate)
		rules = p.rules
		for step := range 30 {
			p.advance()
			p.matchRules()
			want, got := p.collect(p.stock, p.theirs), p.collect(p.own, p.ours)
			if want == got {
				continue
			}
			if len(p.rules) == 0 {
				difference = fmt.Sprintf("seed %d step %d policy %+v\nstock: %s\nours:  %s", seed, step, p.policy, want, got)
			}
			return
		}
	})
	return difference, rules
}

func sequences(t *testing.T) int64 {
	if s := os.Getenv("PLIMSOLL_SEQUENCES"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 1000
}

func TestLikeStock(t *testing.T) {
	metrics.Register()
	total, clean, applied := sequences(t), int64(0), map[string]int{}
	for seed := range total {
		difference, rules := runComparison(t, seed, nil)
		if difference != "" {
			t.Fatalf("no rule explains this:\n%s", difference)
		}
		if len(rules) == 0 {
			clean++
		}
		for r := range rules {
			applied[r]++
		}
	}
	t.Logf("%d sequences, %d had no rule", total, clean)
	for _, r := range slices.Sorted(maps.Keys(applied)) {
		t.Logf("%6d %s", applied[r], r)
	}
	if clean*100 < total*60 {
		t.Errorf("only %d of %d sequences had no rule", clean, total)
	}
	for _, r := range []string{neverUsed, ageFails, notMissing} {
		if applied[r] == 0 {
			t.Errorf("no sequence reached: %s", r)
		}
	}
}

func TestLikeStockDetectsMutants(t *testing.T) {
	for name, mutate := range map[string]func(*Config){
		"minimal age":      func(c *Config) { c.Policy.Images.MinAge += 5 * time.Minute },
		"maximal age":      func(c *Config) { c.Policy.Images.MaxAge += c.Policy.Images.MaxAge },
		"upper percentage": func(c *Config) { c.Policy.HighPercent++ },
		"lower percentage": func(c *Config) { c.Policy.LowPercent = max(0, c.Policy.LowPercent-2) },
		"containers": func(c *Config) {
			c.Active = func() []*v1.Pod { return []*v1.Pod{podWithImage("pod", "100")} }
			c.Containers = noPods{c.Containers}
		},
		"order": func(c *Config) {
			c.Images = removesLastImage{c.Images}
			c.Policy.Images = plan.Policy{MinAge: c.Policy.Images.MinAge}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range sequences(t) {
				if difference, _ := runComparison(t, seed, mutate); difference != "" {
					return
				}
			}
			t.Error("not detected")
		})
	}
}

// noPods hides containers.
type noPods struct{ Containers }

func (noPods) GetPods(context.Context, bool) ([]*kubecontainer.Pod, error) { return nil, nil }

// removesLastImage removes the last image instead of the given one.
type removesLastImage struct{ Images }

func (y removesLastImage) RemoveImage(ctx context.Context, image kubecontainer.ImageSpec) error {
	list, err := y.ListImages(ctx)
	if err != nil {
		return err
	}
	image.Image = list[len(list)-1].ID
	return y.Images.RemoveImage(ctx, image)
}
