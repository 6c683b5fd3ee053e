package chaos

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Ended is a pod that has no running containers any more, as far as the API shows.
type Ended struct {
	Name string
	// Why is a final phase, or "deleted".
	Why string
	// Since is when that was observed.
	Since time.Time
}

// Phases checks the phases that the API shows of every pod. It is safe for concurrent use.
type Phases struct {
	mu    sync.Mutex
	ended map[string]Ended
	wrong []string
}

// NewPhases returns a Phases without observations.
func NewPhases() *Phases { return &Phases{ended: map[string]Ended{}} }

// See adds a status. A pod that has a final phase must keep it.
func (p *Phases) See(pod *v1.Pod, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uid, phase := string(pod.UID), pod.Status.Phase
	before, known := p.ended[uid]
	if known && before.Why != string(phase) {
		p.wrong = append(p.wrong,
			fmt.Sprintf("the phase of pod %s (%s) changed from %s to %s", pod.Name, uid, before.Why, phase))
		return
	}
	if !known && (phase == v1.PodSucceeded || phase == v1.PodFailed) {
		p.ended[uid] = Ended{Name: pod.Name, Why: string(phase), Since: at}
	}
}

// Deleted adds the removal of a pod from the API. The containers of a pod that was deleted by force may still run.
func (p *Phases) Deleted(pod *v1.Pod, forced bool, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uid := string(pod.UID)
	if _, known := p.ended[uid]; !known && !forced {
		p.ended[uid] = Ended{Name: pod.Name, Why: "deleted", Since: at}
	}
}

// Ended returns whether, and since when, a pod must have no running containers.
func (p *Phases) Ended(uid string) (Ended, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ended, ok := p.ended[uid]
	return ended, ok
}

// Violations returns every change of a final phase.
func (p *Phases) Violations() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.wrong...)
}
