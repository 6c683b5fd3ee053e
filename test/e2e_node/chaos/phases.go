package chaos

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Over is that a pod has no containers any more, as far as the API tells.
type Over struct {
	Name string
	// Why is a final phase, or "deleted".
	Why string
	// Since is when the observer learned it.
	Since time.Time
}

// Phases watches what the API shows of every pod. It may be used by many
// goroutines.
type Phases struct {
	mu    sync.Mutex
	over  map[string]Over
	wrong []string
}

// NewPhases has seen nothing yet.
func NewPhases() *Phases { return &Phases{over: map[string]Over{}} }

// See takes in a status. A pod that came to a final phase stays there.
func (p *Phases) See(pod *v1.Pod, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uid, phase := string(pod.UID), pod.Status.Phase
	before, known := p.over[uid]
	if known && before.Why != string(phase) {
		p.wrong = append(p.wrong, fmt.Sprintf("pod %s (%s) went from %s to %s", pod.Name, uid, before.Why, phase))
		return
	}
	if !known && (phase == v1.PodSucceeded || phase == v1.PodFailed) {
		p.over[uid] = Over{Name: pod.Name, Why: string(phase), Since: at}
	}
}

// Deleted takes in that the API server forgot a pod. A pod that was forced out
// of the API may have containers all the same.
func (p *Phases) Deleted(pod *v1.Pod, forced bool, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uid := string(pod.UID)
	if _, known := p.over[uid]; !known && !forced {
		p.over[uid] = Over{Name: pod.Name, Why: "deleted", Since: at}
	}
}

// Over says whether, and since when, a pod should have no containers.
func (p *Phases) Over(uid string) (Over, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	over, ok := p.over[uid]
	return over, ok
}

// Wrong is every phase that was left and should not have been.
func (p *Phases) Wrong() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.wrong...)
}
