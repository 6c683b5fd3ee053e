package nodestatus

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reporter/merge"
)

// Whatever happens in whatever order (changes, restarts with old answers, other writers, a lister that lags, an API
// server that fails), the Node has in the end what is reported, and what others have written.
func TestReportedFieldsAtRandom(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			h := &reportedHistory{
				t: t, s: newAPIServer(reportedNode()), r: newReporters(t), random: rand.New(rand.NewPCG(seed, 0)),
			}
			h.start(nil)
			for range 60 {
				h.step()
				time.Sleep(time.Duration(h.random.IntN(15_000)) * time.Millisecond)
			}
			h.s.mu.Lock()
			h.s.lagging = false
			h.s.fail("patch")
			h.s.mu.Unlock()
			h.s.deliver()
			time.Sleep(15 * time.Minute)
			wantReported(t, h.s, reportedText(&v1.Node{
				ObjectMeta: metav1.ObjectMeta{Labels: h.content.Labels, Annotations: h.content.Annotations},
				Status:     v1.NodeStatus{Capacity: h.content.Capacity, Allocatable: h.content.Allocatable},
			}))
			h.stop()
			if t.Failed() {
				t.Fatalf("seed %d:\n%s", seed, strings.Join(h.did, "\n"))
			}
		})
	}
}

// reportedHistory is an agent, and what it and others have done.
type reportedHistory struct {
	t       *testing.T
	s       *apiServer
	r       *reporters
	u       *Updater
	stop    func()
	random  *rand.Rand
	content merge.Node
	did     []string
}

// start starts an agent whose plugins have not answered: it has the answers of a checkpoint, or none.
func (h *reportedHistory) start(checkpoint *merge.Node) {
	h.r.mu.Lock()
	h.r.content, h.r.confirmed, h.r.known = merge.Node{}, &merge.Node{}, checkpoint != nil
	if checkpoint != nil {
		h.r.content = *checkpoint
	}
	h.r.mu.Unlock()
	h.u = newUpdater(h.t, h.s, newWorld(), h.r.configure)
	ctx, cancel := context.WithCancel(h.t.Context())
	var running sync.WaitGroup
	running.Go(func() { runWithReported(ctx, h.u) })
	h.stop = func() { cancel(); running.Wait() }
	time.Sleep(time.Duration(h.random.IntN(5000)) * time.Millisecond)
	h.report()
}

// report has the plugins report the content.
func (h *reportedHistory) report() {
	h.r.mu.Lock()
	h.r.confirmed = nil
	h.r.mu.Unlock()
	h.r.report(h.u, true, h.content)
}

func (h *reportedHistory) step() {
	n := h.random.IntN(9)
	h.did = append(h.did, fmt.Sprint(time.Now().Format(time.TimeOnly), " ", n, " ", h.content))
	switch n {
	case 0, 1, 2, 3:
		h.content = merge.Node{}
		if n := h.random.IntN(3); n > 0 {
			h.content = slots(fmt.Sprint(n), fmt.Sprint(n))
		}
		if n := h.random.IntN(3); n > 0 {
			h.content.Labels = labelled(fmt.Sprint(n)).Labels
		}
		if n := h.random.IntN(3); n > 0 {
			h.content.Annotations = labelled(fmt.Sprint(n)).Labels
		}
		h.report()
	case 4:
		h.stop()
		checkpoint := slots("3", "3")
		checkpoint.Labels = labelled("checkpoint").Labels
		h.start([]*merge.Node{nil, {}, &checkpoint}[h.random.IntN(3)])
	case 5:
		h.s.edit(func(n *v1.Node) { n.Labels["theirs.example/b"] = fmt.Sprint(len(h.did)) })
	case 6:
		h.s.mu.Lock()
		h.s.lagging = !h.s.lagging
		h.s.mu.Unlock()
		h.s.deliver()
	case 7:
		faults := make([]error, h.random.IntN(8))
		for i := range faults {
			faults[i] = []error{
				errors.New("connection refused"), apierrors.NewConflict(v1.Resource("nodes"), testNode, errors.New("fault")),
				apierrors.NewForbidden(v1.Resource("nodes"), testNode, errors.New("fault")),
			}[h.random.IntN(3)]
		}
		h.s.mu.Lock()
		h.s.fail("patch", faults...)
		h.s.mu.Unlock()
	case 8:
		// Somebody removes what the agent has written.
		h.s.edit(func(n *v1.Node) { delete(n.Labels, reportedLabel) })
	}
}
