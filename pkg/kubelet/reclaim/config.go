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

// Images is the part of the container runtime that manages images.
type Images interface {
	ListImages(ctx context.Context) ([]kubecontainer.Image, error)
	RemoveImage(ctx context.Context, image kubecontainer.ImageSpec) error
}

// Containers is the part of the container runtime that manages containers.
type Containers interface {
	// GetPods lists the pods of the runtime with their running containers, and with those that have ended if all is true.
	GetPods(ctx context.Context, all bool) ([]*kubecontainer.Pod, error)
	GetContainerStatus(ctx context.Context, pod types.UID, id kubecontainer.ContainerID) (*kubecontainer.Status, error)
	// DeleteContainer removes a container that is not running, with its logs.
	DeleteContainer(ctx context.Context, id kubecontainer.ContainerID) error
}

// Collector is stock's container garbage collector.
type Collector interface {
	// GarbageCollect removes dead containers and sandboxes beyond what its policy keeps.
	GarbageCollect(ctx context.Context) error
	// DeleteAllUnusedContainers removes the containers, sandboxes and logs of pods that have ended.
	DeleteAllUnusedContainers(ctx context.Context) error
}

// PodStates reports the progress of terminations.
type PodStates interface {
	// ShouldPodContentBeRemoved is true for a pod that was evicted or deleted, and has stopped.
	ShouldPodContentBeRemoved(uid types.UID) bool
	// ShouldPodRuntimeBeRemoved is true for a pod that has stopped and will not start a container again.
	ShouldPodRuntimeBeRemoved(uid types.UID) bool
}

// Measure reads the available space of a device from its file system, without a cache.
type Measure func(ctx context.Context, d snapshot.Device) (Space, error)

// Space is what is available on a file system.
type Space struct {
	Bytes, Inodes int64
}

// Config is the configuration of a Manager. All fields are required, unless noted otherwise.
type Config struct {
	Images     Images
	Containers Containers
	Collector  Collector
	PodStates  PodStates
	// Active are the pods that may start containers.
	Active func() []*v1.Pod
	// SourcesReady is true when all sources of pods have reported. Before, an unknown pod may still be desired.
	SourcesReady func() bool
	// Pulling lists the names of the images that are being pulled.
	Pulling func() []string
	Measure Measure
	// Stats measure the image file system for the periodic collection.
	Stats    stock.StatsProvider
	Recorder record.EventRecorder
	NodeRef  *v1.ObjectReference
	Tracer   trace.TracerProvider
	Clock    clock.PassiveClock

	Policy Policy
	// Hooks are called with the remaining images after some were removed. May be empty.
	Hooks    []stock.PostImageGCHook
	Features Features
}

// Policy is the part of the KubeletConfiguration that applies to images and dead containers.
type Policy struct {
	// HighPercent is the usage of the image file system, in percent, from which on images are removed until it is
	// LowPercent.
	HighPercent, LowPercent int
	Images                  plan.Policy
	Containers              plan.ContainerPolicy
}

// Features are feature gates of stock, as values.
type Features struct {
	// RuntimeClassInImageCRI: images are distinguished by runtime handler (gate RuntimeClassInImageCriApi).
	RuntimeClassInImageCRI bool
	// ImageVolume: images can be volumes.
	ImageVolume bool
}

// FeaturesFrom returns the features that are enabled.
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
		missing("PodStates", c.PodStates == nil), missing("Active", c.Active == nil),
		missing("SourcesReady", c.SourcesReady == nil),
		missing("Pulling", c.Pulling == nil), missing("Measure", c.Measure == nil), missing("Stats", c.Stats == nil),
		missing("Recorder", c.Recorder == nil), missing("Tracer", c.Tracer == nil), missing("Clock", c.Clock == nil),
	)
	if err == nil && c.Policy.LowPercent > c.Policy.HighPercent {
		err = fmt.Errorf("LowThresholdPercent %d can not be higher than HighThresholdPercent %d", c.Policy.LowPercent,
			c.Policy.HighPercent)
	}
	return err
}
