package plugin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// random is a plugin whose answers are random: slow, hanging, failing, panicking, about pods that it may not name.
type random struct {
	mu sync.Mutex
	*rand.Rand
	pods []types.UID
}

func (p *random) draw(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.IntN(n)
}

// misbehave waits, fails or panics, or does nothing of that.
func (p *random) misbehave(ctx context.Context) error {
	switch p.draw(12) {
	case 0:
		<-ctx.Done()
		return ctx.Err()
	case 1:
		time.Sleep(time.Duration(p.draw(20000)) * time.Millisecond)
	case 2:
		return errors.New("random")
	case 3:
		panic("random")
	case 4, 5, 6:
		time.Sleep(time.Duration(p.draw(10)) * time.Millisecond)
	}
	return nil
}

func (p *random) uids() (list []types.UID) {
	for range p.draw(5) {
		list = append(list, p.pods[p.draw(len(p.pods))])
	}
	return list
}

func (p *random) grace() *int64 {
	return []*int64{nil, new(int64(-1)), new(int64(0)), new(int64(30)), new(int64(math.MaxInt64))}[p.draw(5)]
}

func (p *random) condition() *arbiter.ConditionReport {
	return &arbiter.ConditionReport{Name: fmt.Sprint("C", p.draw(1000)), Met: p.draw(2) == 0, Resource: p.draw(3) == 0}
}

func (p *random) EvictPods(ctx context.Context, _ *View) (*arbiter.Demand, error) {
	if err := p.misbehave(ctx); err != nil {
		return nil, err
	}
	d := &arbiter.Demand{Condition: p.condition()}
	for _, uid := range p.uids() {
		d.Pods = append(d.Pods, arbiter.PodDemand{UID: uid, Force: p.draw(2) == 0, GraceSeconds: p.grace()})
	}
	return d, nil
}

func (p *random) ThresholdMet(ctx context.Context, _ *View) (*arbiter.Threshold, error) {
	if err := p.misbehave(ctx); err != nil {
		return nil, err
	}
	return &arbiter.Threshold{
		Kind: arbiter.Kind(p.draw(4)), Scope: []string{"memory", "cpu", "x"}[p.draw(3)], Candidates: p.uids(),
		Grace: time.Duration(p.draw(4)-1) * 5 * time.Second, Condition: p.condition(), Observed: math.NaN(),
	}, nil
}

func (p *random) TopEvictionPods(ctx context.Context, _ *View, _ arbiter.Question) (*arbiter.Reply, error) {
	if err := p.misbehave(ctx); err != nil {
		return nil, err
	}
	return &arbiter.Reply{Pods: p.uids(), GraceSeconds: p.grace()}, nil
}

// Random histories of plugins that hang, lie, fail and panic, of pods that are evicted and end, of plugins that come
// and go, and of options that change: no foreign or protected pod is ever requested, none twice, and bounds hold.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(histories) {
		synctest.Test(t, func(t *testing.T) { history(t, rand.New(rand.NewPCG(seed, 3))) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func history(t *testing.T, rnd *rand.Rand) {
	protected := func(p *v1.Pod) { p.Annotations = map[string]string{arbiter.QoSLevelKey: arbiter.SystemCores} }
	r := newRig(t, options(), nil, pod("protected", protected))
	names := []types.UID{"protected", "foreign"}
	for i := range 5 + rnd.IntN(10) {
		names = append(names, types.UID(fmt.Sprint("pod", i)))
		opted := func(p *v1.Pod) {
			if rnd.IntN(3) == 0 {
				asksNotice(p)
			}
		}
		r.pods = append(r.pods, pod(names[i+2], opted))
	}
	var blocked []types.UID
	r.Driver.config.Blocked = func() []types.UID {
		r.mu.Lock()
		defer r.mu.Unlock()
		return slices.Clone(blocked)
	}
	r.Driver.config.NoticeFiles = &writes{}
	fresh := func() Plugin { return &random{Rand: rand.New(rand.NewPCG(rnd.Uint64(), 1)), pods: names} }
	r.Driver.config.InTree = map[string]Plugin{"a": fresh(), "dry": fresh()}
	r.remote = []Remote{{Name: "r0", Socket: "0", Plugin: fresh()}, {Name: "r1", Socket: "1", Plugin: fresh()}}
	o := options()
	o.DryRun, o.Rules.Burst, o.Rules.MaxInFlight = Selector{"dry"}, rnd.IntN(4)-1, 1+rnd.IntN(5)
	o.SoftNoticeDirectory = []string{"", "/n"}[rnd.IntN(2)]
	o.Rules.Killers = arbiter.Killers{Forced: snapshot.Killer(rnd.IntN(3)), Soft: snapshot.Killer(rnd.IntN(3))}
	r.SetOptions(o)
	r.start()
	defer func() {
		// Plugins that ignore the end of their calls return in the end.
		r.cancel()
		<-r.ended
	}()
	for range 15 {
		pass(time.Duration(rnd.IntN(4000)) * time.Millisecond)
		r.check(o)
		switch rnd.IntN(7) {
		case 6:
			r.set(func() { blocked = []types.UID{names[rnd.IntN(len(names))], names[rnd.IntN(len(names))]} })
			r.BlockedChanged()
		case 0:
			r.deliver(crossing())
		case 1:
			r.setRemote(Remote{Name: "r0", Socket: fmt.Sprint(rnd.IntN(2)), Plugin: fresh()})
		case 2:
			o.InTree, o.Period = []Selector{{"*"}, {"*", "-a"}, nil}[rnd.IntN(3)], time.Duration(1+rnd.IntN(5))*time.Second
			r.SetOptions(o)
		case 3:
			r.set(r.release)
		default:
			r.set(func() { r.evict(rnd) })
		}
	}
	o.InTree, o.Remote = nil, nil
	r.SetOptions(o)
	pass(0)
	r.expect("requests at the end", r.requested(), "")
}

// evict evicts one pod that is requested, and makes those in flight overdue.
func (r *rig) evict(rnd *rand.Rand) {
	for i := range r.inFlight {
		r.inFlight[i].Overdue = rnd.IntN(2) == 0
	}
	for _, q := range r.Requests() {
		if !slices.ContainsFunc(r.inFlight, func(f eviction.InFlightPod) bool { return f.UID == q.UID }) {
			r.inFlight = append(r.inFlight, eviction.InFlightPod{UID: q.UID})
			return
		}
	}
}

// release releases the pods that are overdue.
func (r *rig) release() {
	r.inFlight = slices.DeleteFunc(r.inFlight, func(f eviction.InFlightPod) bool {
		if f.Overdue {
			r.pods = slices.DeleteFunc(r.pods, func(p *v1.Pod) bool { return p.UID == f.UID })
			r.released = append(r.released, f.UID)
		}
		return f.Overdue
	})
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (r *rig) check(o Options) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[types.UID]bool{}
	waiting := 0
	opted := map[types.UID]bool{}
	for _, p := range r.pods {
		opted[p.UID] = p.Annotations[arbiter.SoftNoticeKey] == "true"
	}
	for _, q := range r.Requests() {
		if slices.Contains(r.released, q.UID) {
			// Requests for it end when answers are settled the next time.
			continue
		}
		known := slices.ContainsFunc(r.pods, func(p *v1.Pod) bool { return p.UID == q.UID })
		if !known || q.UID == "protected" || seen[q.UID] {
			r.t.Errorf("must not be requested: %+v", q)
		}
		seen[q.UID] = true
		if q.GraceSeconds != nil && (*q.GraceSeconds < 1 || *q.GraceSeconds > o.Rules.MaxGracePeriodSeconds) {
			r.t.Errorf("grace %d", *q.GraceSeconds)
		}
		if opted[q.UID] && !q.Forced {
			r.t.Errorf("is given notice only: %+v", q)
		}
		if want := []snapshot.Killer{o.Rules.Killers.Soft, o.Rules.Killers.Forced}; q.Killer != want[toInt(q.Forced)] {
			r.t.Errorf("killer %d: %+v", q.Killer, q)
		}
		if slices.Contains(q.Plugins, "dry") {
			r.t.Errorf("requested in dry run: %+v", q)
		}
		if !slices.ContainsFunc(r.inFlight, func(f eviction.InFlightPod) bool { return f.UID == q.UID }) {
			waiting++
		}
	}
	for _, n := range r.Driver.notices {
		if !slices.Contains(r.released, n.UID) && (!opted[n.UID] || seen[n.UID] || slices.Contains(n.Plugins, "dry")) {
			r.t.Errorf("must be given no notice: %+v", n)
		}
	}
	if waiting > o.Rules.MaxInFlight {
		r.t.Errorf("%d requested, at most %d", waiting, o.Rules.MaxInFlight)
	}
	if n := len(r.Conditions()); n > 64 {
		r.t.Errorf("%d conditions", n)
	}
}
