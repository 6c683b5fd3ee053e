package reclaim

import (
	"context"
	"maps"
	"slices"
	"sync"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PullTracker is the runtime's image service, and records which images are being pulled through it. The records of
// stock's pull manager are private to it, and are kept after pulls that failed.
type PullTracker struct {
	internalapi.ImageManagerService

	mu    sync.Mutex
	pulls map[string]int
}

// NewPullTracker wraps an image service.
func NewPullTracker(service internalapi.ImageManagerService) *PullTracker {
	return &PullTracker{ImageManagerService: service, pulls: map[string]int{}}
}

// PullImage pulls an image. Until it returns, the image counts as being pulled.
func (p *PullTracker) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	name := image.GetImage()
	p.add(name, 1)
	defer p.add(name, -1)
	return p.ImageManagerService.PullImage(ctx, image, auth, sandbox)
}

func (p *PullTracker) add(name string, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulls[name] += by; p.pulls[name] == 0 {
		delete(p.pulls, name)
	}
}

// Pulling lists the names of the images that are being pulled, sorted.
func (p *PullTracker) Pulling() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.pulls))
}
