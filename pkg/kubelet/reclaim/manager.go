package reclaim

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
)

const (
	// detectPeriod is how often it is looked who uses which image, listPeriod how often the list of images is read; both
	// as stock.
	detectPeriod = 5 * time.Minute
	listPeriod   = 30 * time.Second
	// scope names the spans; stock's, so that traces can be compared.
	scope = "k8s.io/kubernetes/pkg/kubelet/images"
)

// Manager removes images and containers that nobody uses. Its methods may be called from any goroutine. Run is called
// once.
type Manager struct {
	config Config
	tracer trace.Tracer
	// turn holds a token while images may not be removed by anybody else.
	turn chan struct{}
	// list is the newest list of images, sorted.
	list atomic.Pointer[[]kubecontainer.Image]

	mu      sync.Mutex
	records map[plan.Key]history
	// removed is when an image was last removed: a view from before does not know.
	removed time.Time
	// seen is the newest view of the node.
	seen *sighting
}

// history is what is remembered of an image.
type history struct {
	first, last time.Time
}

// New checks the configuration and makes a manager. Nothing is started.
func New(c Config) (*Manager, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Manager{
		config: c, tracer: c.Tracer.Tracer(scope), turn: make(chan struct{}, 1), records: map[plan.Key]history{},
	}, nil
}

// Run watches what images there are and who uses them, until ctx ends. It removes nothing.
func (m *Manager) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { wait.UntilWithContext(ctx, m.detect, detectPeriod) })
	work.Go(func() { wait.UntilWithContext(ctx, m.refresh, listPeriod) })
}

func (m *Manager) detect(ctx context.Context) {
	s, err := m.sight(ctx)
	if err != nil {
		klog.FromContext(ctx).Info("Failed to monitor images", "err", err)
		return
	}
	m.observe(s)
}

// refresh reads the list for the node's status. That an image is there is noted at once, so that its age is right.
func (m *Manager) refresh(ctx context.Context) {
	images, err := m.config.Images.ListImages(ctx)
	if err != nil {
		klog.FromContext(ctx).Info("Failed to update image list", "err", err)
		return
	}
	m.mu.Lock()
	for i := range images {
		m.note(m.keyOf(&images[i]), m.config.Clock.Now())
	}
	m.mu.Unlock()
	m.publish(images)
}

// take waits for the turn. The caller gives it back with the function.
func (m *Manager) take(ctx context.Context) (done func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case m.turn <- struct{}{}:
		return func() { <-m.turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
