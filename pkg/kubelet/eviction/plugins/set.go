package plugins

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/arbiter"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/cpupressure"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/memorygrowth"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/reclaimedresource"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rootfs"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rssoveruse"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/systemmemory"
)

// Settings are what the plugins use of the configuration. They may change at any time.
type Settings struct {
	// PluginSettings must be defaulted and valid.
	v1alpha1.PluginSettings
	Levels arbiter.Levels
	// Period is the time between two rounds of calls.
	Period time.Duration
	// MonitoringPeriod is that of the eviction manager.
	MonitoringPeriod time.Duration
}

// Files are files of the kernel that stay open while a plugin is called.
type Files interface {
	// Close closes the files until they are read again.
	Close()
}

// The readers below return what they can read. The error, which may come with values, names what cannot be read and
// why, in at most a few hundred bytes: for files of pods the first one.

// Resident reads the resident sets of pods.
type Resident interface {
	Files
	// Bytes returns them in bytes. Pods for which they are unknown are left out.
	Bytes(pods []*v1.Pod) (map[types.UID]int64, error)
}

// Zones reads the memory of NUMA nodes.
type Zones interface {
	Files
	// Zones returns the NUMA nodes that are known in full.
	Zones() ([]numamemory.Zone, error)
}

// NUMAMemory reads the memory of pods by NUMA node.
type NUMAMemory interface {
	Files
	// ByNode returns it in bytes. Pods for which it is unknown are left out.
	ByNode(pods []*v1.Pod) (map[types.UID]map[int]int64, error)
}

// NodeMemory reads what is known of the memory of the node.
type NodeMemory interface {
	Files
	Node() (systemmemory.Node, error)
}

// PodMemory reads the memory usage of pods. Pods for which it is unknown are left out.
type PodMemory interface {
	Files
	// Usage returns the usage in bytes.
	Usage(pods []*v1.Pod) (map[types.UID]int64, error)
	// Stalls returns some avg10 of memory.pressure in percent, nil with cgroup v1.
	Stalls(pods []*v1.Pod) (map[types.UID]float64, error)
}

// CPU reads what is known of the CPUs of the node, and what pods have used of them.
type CPU interface {
	Files
	Node() (cpupressure.Node, error)
	// Used returns the CPU time of pods. Pods for which it is unknown are left out.
	Used(pods []*v1.Pod) (map[types.UID]time.Duration, error)
}

// Config is what the plugins work with. All fields are required.
type Config struct {
	// Settings is called once for each round of a plugin.
	Settings   func() Settings
	Recorder   record.EventRecorder
	Resident   Resident
	Zones      Zones
	NUMAMemory NUMAMemory
	NodeMemory NodeMemory
	PodMemory  PodMemory
	CPU        CPU
	// Node returns the Node without a call of the API server.
	Node func(context.Context) (*v1.Node, error)
	// CustomNodeResource returns what is allocatable by Katalyst's CustomNodeResource, nil if there is none. It fails if
	// that is unknown for now.
	CustomNodeResource func(context.Context) (v1.ResourceList, error)
}

// Set are the eviction plugins in the agent.
type Set struct {
	config  Config
	plugins map[string]plugin.Plugin
	// files are those of the plugins that have any.
	files map[string][]Files
	// The states of rules. The calls of one plugin are made one at a time.
	numaState   numamemory.State
	systemState systemmemory.State
	cpuState    cpupressure.State
	// reclaimedMet is the reclaimed resource whose threshold was met in the last round.
	reclaimedMet v1.ResourceName
}

// New returns the plugins. They read nothing before they are called.
func New(config Config) (*Set, error) {
	for name, missing := range map[string]bool{
		"Settings": config.Settings == nil, "Recorder": config.Recorder == nil, "Resident": config.Resident == nil,
		"Zones": config.Zones == nil, "NUMAMemory": config.NUMAMemory == nil, "NodeMemory": config.NodeMemory == nil,
		"PodMemory": config.PodMemory == nil, "CPU": config.CPU == nil, "Node": config.Node == nil,
		"CustomNodeResource": config.CustomNodeResource == nil,
	} {
		if missing {
			return nil, fmt.Errorf("eviction plugins in the agent: %s is missing", name)
		}
	}
	s := &Set{config: config, plugins: map[string]plugin.Plugin{}, files: map[string][]Files{}}
	s.plugins[memorygrowth.Name] = memorygrowth.New(func() memorygrowth.Settings {
		settings := config.Settings()
		return memorygrowth.Settings{
			Horizon: settings.MemoryGrowth.Horizon.Duration, MonitoringPeriod: settings.MonitoringPeriod,
		}
	})
	s.add(reclaimedresource.Name, s.reclaimedResource)
	s.add(rssoveruse.Name, s.rssOveruse, config.Resident)
	s.add(numamemory.Name, s.numaMemory, config.Zones, config.NUMAMemory)
	s.add(rootfs.PressureName, s.rootfsPressure)
	s.add(rootfs.OveruseName, s.rootfsOveruse)
	s.add(cpupressure.Name, s.cpuPressure, config.CPU)
	system := s.add(systemmemory.Name, s.systemMemory, config.NodeMemory, config.PodMemory)
	system.proposed = func(v *plugin.View, _ types.UID) { s.systemState = s.systemState.Propose(v.Taken) }
	return s, nil
}

// add adds a plugin that answers by a rule.
func (s *Set) add(
	name string, decide func(context.Context, *plugin.View) (rule.Finding, error), files ...Files,
) *rulePlugin {
	p := &rulePlugin{name: name, decide: decide, recorder: s.config.Recorder}
	s.plugins[name], s.files[name] = p, files
	return p
}

// Plugins returns the plugins by name. The result must not be modified.
func (s *Set) Plugins() map[string]plugin.Plugin { return s.plugins }

// Enabled closes the files of the plugins that are not enabled. A call that is under way may open them again; they are
// closed by the next call of Enabled then.
func (s *Set) Enabled(enabled func(name string) bool) {
	for name, files := range s.files {
		if !enabled(name) {
			for _, f := range files {
				f.Close()
			}
		}
	}
}
