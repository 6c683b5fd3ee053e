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
	// detectPeriod is the time between two observations of the usage of images, listPeriod that between two readings of
	// the list of images; both as in stock.
	detectPeriod = 5 * time.Minute
	listPeriod   = 30 * time.Second
	// tracerName is stock's, so that traces can be compared.
	tracerName = "k8s.io/kubernetes/pkg/kubelet/images"
)

// Manager removes unused images and containers. Its methods are safe for concurrent use. Run may be called once.
type Manager struct {
	config Config
	tracer trace.Tracer
	// locked holds a token while a collection is under way.
	locked chan struct{}
	// imageList is the newest list of images, sorted by size.
	imageList atomic.Pointer[[]kubecontainer.Image]

	mu      sync.Mutex
	records map[plan.Key]imageRecord
	// lastRemoval is the time at which an image was last removed. An observation from before still has that image.
	lastRemoval time.Time
	// usage is the newest observation of the usage of images.
	usage *imageUsage
}

// imageRecord is what is recorded about an image. lastUsed is zero if the image was not in use since the agent started.
type imageRecord struct {
	firstDetected, lastUsed time.Time
}

// New validates the configuration and returns a manager. It starts nothing.
func New(c Config) (*Manager, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Manager{
		config: c, tracer: c.Tracer.Tracer(tracerName), locked: make(chan struct{}, 1), records: map[plan.Key]imageRecord{},
	}, nil
}

// Run updates the list of images and their usage until ctx ends. It removes nothing.
func (m *Manager) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { wait.UntilWithContext(ctx, m.updateUsage, detectPeriod) })
	work.Go(func() { wait.UntilWithContext(ctx, m.updateImageList, listPeriod) })
}

func (m *Manager) updateUsage(ctx context.Context) {
	s, err := m.readUsage(ctx)
	if err != nil {
		klog.FromContext(ctx).Info("Failed to monitor images", "err", err)
		return
	}
	m.updateRecords(s)
}

// updateImageList reads the list for the node's status. It also records new images, so that their age is exact.
func (m *Manager) updateImageList(ctx context.Context) {
	images, err := m.config.Images.ListImages(ctx)
	if err != nil {
		klog.FromContext(ctx).Info("Failed to update image list", "err", err)
		return
	}
	m.mu.Lock()
	for i := range images {
		m.addRecord(m.keyOf(&images[i]), m.config.Clock.Now())
	}
	m.mu.Unlock()
	m.setImageList(images)
}

// lock waits until no collection is under way. The caller ends its own with unlock.
func (m *Manager) lock(ctx context.Context) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case m.locked <- struct{}{}:
		return func() { <-m.locked }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
