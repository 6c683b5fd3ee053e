package reclaim

import (
	"context"
	"maps"
	"slices"
	"sync"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pulls is the runtime's image service, and knows what is being pulled through it. What stock's pull manager writes
// down of pulls is private to it, and outlives pulls that failed.
type Pulls struct {
	internalapi.ImageManagerService

	mu    sync.Mutex
	count map[string]int
}

// TrackPulls wraps an image service.
func TrackPulls(service internalapi.ImageManagerService) *Pulls {
	return &Pulls{ImageManagerService: service, count: map[string]int{}}
}

// PullImage pulls an image; until it returns the image counts as being pulled.
func (p *Pulls) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	name := image.GetImage()
	p.change(name, 1)
	defer p.change(name, -1)
	return p.ImageManagerService.PullImage(ctx, image, auth, sandbox)
}

func (p *Pulls) change(name string, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count[name] += by; p.count[name] == 0 {
		delete(p.count, name)
	}
}

// Pulling lists the names of the images that are being pulled, sorted.
func (p *Pulls) Pulling() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.count))
}
