package nodestatus

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Updater writes the Node. Make it with New, after everything it reports of.
type Updater struct {
	*View
	cfg      Config
	reported setters
	silent   setters
	bell     chan struct{}
	restore  sync.Once

	// syncing is held by whoever computes a whole status; report belongs to it.
	syncing sync.Mutex
	report  reportState

	// writing is held from the decision what to patch until the answer is there; own belongs to it. It is taken after
	// syncing, and never held while the runtime is asked.
	writing sync.Mutex
	own     ownWrite

	// cidr is held while the runtime is told the pod CIDR.
	cidr sync.Mutex
}

// reportState is what the heartbeat remembers between two rounds.
type reportState struct {
	registered bool
	// last is when the whole status was last accepted by the API server.
	last time.Time
	// delay is added to the report frequency for the next report, so that nodes that changed together report apart.
	delay time.Duration
	// random returns a value in [0, 1).
	random func() float64
}

// New returns an Updater and completes the View of cfg. It starts nothing.
func New(cfg Config) *Updater {
	u := &Updater{View: cfg.View, cfg: cfg, bell: make(chan struct{}, 1)}
	u.report.random = rand.Float64
	u.reported = u.newSetters(u.events())
	u.silent = u.newSetters(noEvents())
	u.complete(func(ctx context.Context) (*v1.Node, error) { return u.initialNode(ctx, u.silent), nil })
	return u
}

func (u *Updater) reportsNothing() bool { return u.cfg.Client == nil || u.cfg.Heartbeat == nil }
