package reclaim

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/pkg/features"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	stock "k8s.io/kubernetes/pkg/kubelet/images"
	"k8s.io/utils/clock"

	"github.com/plimsoll-project/plimsoll/pkg/kubelet/reclaim/plan"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/snapshot"
)

// Images are the runtime's images.
type Images interface {
	ListImages(ctx context.Context) ([]kubecontainer.Image, error)
	RemoveImage(ctx context.Context, image kubecontainer.ImageSpec) error
}

// Containers are the runtime's containers.
type Containers interface {
	// GetPods lists what the runtime has, with the containers that have ended when all is set.
	GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error)
	GetContainerStatus(ctx context.Context, pod types.UID, id kubecontainer.ContainerID) (*kubecontainer.Status, error)
	// DeleteContainer removes a container that does not run, with its logs.
	DeleteContainer(ctx context.Context, id kubecontainer.ContainerID) error
}

// Collector is stock's container garbage collector.
type Collector interface {
	// GarbageCollect removes dead containers and sandboxes beyond what its policy keeps.
	GarbageCollect(ctx context.Context) error
	// DeleteAllUnusedContainers removes all that is left of pods that have ended: containers, sandboxes, logs.
	DeleteAllUnusedContainers(ctx context.Context) error
}

// Fates says what becomes of a pod.
type Fates interface {
	// ShouldPodContentBeRemoved: the pod was evicted or deleted, and has stopped.
	ShouldPodContentBeRemoved(uid types.UID) bool
	// ShouldPodRuntimeBeRemoved: the pod has stopped and starts nothing again.
	ShouldPodRuntimeBeRemoved(uid types.UID) bool
}

// Measure reads what is available on a device from its file system, at once and without a cache.
type Measure func(ctx context.Context, d snapshot.Device) (Space, error)

// Space is what is available on a file system.
type Space struct {
	Bytes, Inodes int64
}

// Config is what a Manager needs; all fields are required, unless it is said otherwise.
type Config struct {
	Images     Images
	Containers Containers
	Collector  Collector
	Fates      Fates
	// Active are the pods that may start containers.
	Active func() []*v1.Pod
	// SourcesReady: all sources of pods have reported. Before, a pod that is not known may still be wanted.
	SourcesReady func() bool
	// Pulling are the names of the images that are being pulled.
	Pulling func() []string
	Measure Measure
	// Stats measure the image file system for the periodic collection.
	Stats    stock.StatsProvider
	Recorder record.EventRecorder
	NodeRef  *v1.ObjectReference
	Tracer   trace.TracerProvider
	Clock    clock.PassiveClock

	Policy Policy
	// Hooks are told what images remain after some were removed; may be empty.
	Hooks    []stock.PostImageGCHook
	Features Features
}

// Policy is what configuration says.
type Policy struct {
	// When HighPercent of the image file system are used, images go until it is LowPercent.
	HighPercent, LowPercent int
	Images                  plan.Policy
	Containers              plan.ContainerPolicy
}

// Features are feature gates of stock, as values.
type Features struct {
	// RuntimeClassInImageCRI: images are told apart by their runtime handler (gate RuntimeClassInImageCriApi).
	RuntimeClassInImageCRI bool
	// ImageVolume: images can be volumes.
	ImageVolume bool
}

// FeaturesFrom reads the gates.
func FeaturesFrom(gates featuregate.FeatureGate) Features {
	return Features{
		RuntimeClassInImageCRI: gates.Enabled(features.RuntimeClassInImageCriAPI),
		ImageVolume:            gates.Enabled(features.ImageVolume),
	}
}

func (c *Config) validate() error {
	percent := func(name string, n int) error {
		if n < 0 || n > 100 {
			return fmt.Errorf("invalid %s %d, must be in range [0-100]", name, n)
		}
		return nil
	}
	missing := func(name string, absent bool) error {
		if absent {
			return errors.New("reclaim: " + name + " is required")
		}
		return nil
	}
	err := errors.Join(
		percent("HighThresholdPercent", c.Policy.HighPercent), percent("LowThresholdPercent", c.Policy.LowPercent),
		missing("Images", c.Images == nil), missing("Containers", c.Containers == nil),
		missing("Collector", c.Collector == nil),
		missing("Fates", c.Fates == nil), missing("Active", c.Active == nil), missing("SourcesReady", c.SourcesReady == nil),
		missing("Pulling", c.Pulling == nil), missing("Measure", c.Measure == nil), missing("Stats", c.Stats == nil),
		missing("Recorder", c.Recorder == nil), missing("Tracer", c.Tracer == nil), missing("Clock", c.Clock == nil),
	)
	if err == nil && c.Policy.LowPercent > c.Policy.HighPercent {
		err = fmt.Errorf("LowThresholdPercent %d can not be higher than HighThresholdPercent %d", c.Policy.LowPercent,
			c.Policy.HighPercent)
	}
	return err
}
