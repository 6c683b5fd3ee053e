package plugins

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin/records"
)

// script is a plugin that answers what the case has set. Its zero value has nothing to say.
type script struct {
	mu        sync.Mutex
	demand    arbiter.Demand
	threshold arbiter.Threshold
	reply     arbiter.Reply
	hangs     bool
	err       error
	// each changes the answers before each round, if it is set.
	each func(s *script)

	// rounds is how often EvictPods was called, seen the pods in the last call. questions are in their order, asked has
	// the pods of each, records the eviction records.
	rounds    int
	seen      []string
	questions []arbiter.Question
	asked     [][]string
	records   []map[types.UID]records.Record
}

var _ plugin.Plugin = (*script)(nil)

// set changes the answers.
func (s *script) set(change func(*script)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

func (s *script) EvictPods(ctx context.Context, v *plugin.View) (*arbiter.Demand, error) {
	s.mu.Lock()
	s.rounds++
	s.seen = names(v)
	if s.each != nil {
		s.each(s)
	}
	s.mu.Unlock()
	if err := s.hang(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.demand
	d.Pods = slices.Clone(d.Pods)
	return &d, s.err
}

// hang waits for the end of the call if the script hangs.
func (s *script) hang(ctx context.Context) error {
	s.mu.Lock()
	hangs := s.hangs
	s.mu.Unlock()
	if !hangs {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *script) ThresholdMet(ctx context.Context, _ *plugin.View) (*arbiter.Threshold, error) {
	if err := s.hang(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.threshold
	return &t, s.err
}

func (s *script) TopEvictionPods(_ context.Context, v *plugin.View, q arbiter.Question) (*arbiter.Reply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.questions, s.asked, s.records = append(s.questions, q), append(s.asked, names(v)), append(s.records, v.Records)
	r := s.reply
	return &r, s.err
}

func names(v *plugin.View) (list []string) {
	for _, pod := range v.Pods {
		list = append(list, pod.Name)
	}
	return list
}

func (s *script) called() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rounds
}

func (s *script) lastSeen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// force requests pods by force, soft without.
func force(uids ...types.UID) *script { return requesting(true, uids) }
func soft(uids ...types.UID) *script  { return requesting(false, uids) }

func requesting(forced bool, uids []types.UID) *script {
	s := &script{}
	for _, uid := range uids {
		s.demand.Pods = append(s.demand.Pods, arbiter.PodDemand{UID: uid, Reason: "too much", Force: forced})
	}
	return s
}

// grace requests one pod by force with a grace period.
func grace(uid types.UID, seconds int64) *script {
	s := force(uid)
	s.demand.Pods[0].GraceSeconds = &seconds
	return s
}

// met has a threshold on memory that is met, and names pods for it.
func met(kind arbiter.Kind, uids ...types.UID) *script {
	return &script{
		threshold: arbiter.Threshold{Kind: kind, Scope: "memory", Target: 10, Observed: 5, LessThan: true},
		reply:     arbiter.Reply{Pods: uids},
	}
}

// reporting reports conditions as met, all with one answer of GetEvictPods each.
func reporting(name string) *script {
	return &script{demand: arbiter.Demand{Condition: &arbiter.ConditionReport{
		Name: name, Met: true, Effects: []string{"NoSchedule"},
	}}}
}
