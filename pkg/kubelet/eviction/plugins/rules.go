package plugins

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/plimsoll-project/plimsoll/pkg/apis/pressure/v1alpha1"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugin"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/cpupressure"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/numamemory"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/reclaimedresource"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rootfs"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rssoveruse"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/rule"
	"github.com/plimsoll-project/plimsoll/pkg/kubelet/eviction/plugins/systemmemory"
)

func (s *Set) rssOveruse(_ context.Context, v *plugin.View) (rule.Finding, error) {
	settings := s.config.Settings()
	resident, unread := s.config.Resident.Bytes(v.Pods)
	if len(resident) == 0 && len(v.Pods) > 0 {
		return rule.Finding{}, because(errNoCgroup, unread)
	}
	facts := rssoveruse.Facts{Pods: v.Pods, Resident: resident}
	found := rssoveruse.Decide(&facts, &rssoveruse.Settings{
		Ratio: rule.Percent(*settings.RSSOveruse.ResidentPercent), Levels: settings.Levels,
	})
	found.Unread = []error{unread}
	return found, nil
}

// errNoCgroup: the facts of no pod are known.
var errNoCgroup = errors.New("the cgroup of no pod can be read")

func (s *Set) reclaimedResource(ctx context.Context, v *plugin.View) (rule.Finding, error) {
	settings := s.config.Settings()
	allocatable, err := s.allocatable(ctx)
	if err != nil {
		return rule.Finding{}, err
	}
	facts := reclaimedresource.Facts{Pods: v.Pods, Ending: ending(v), Allocatable: allocatable, Met: s.reclaimedMet}
	own := &settings.ReclaimedResourcePressure
	found := reclaimedresource.Decide(&facts, &reclaimedresource.Settings{
		Ratio: rule.Percent(*own.RequestedPercent), MetFor: own.MetFor.Duration, Grace: own.GracePeriod.Duration,
		Levels: settings.Levels,
	})
	s.reclaimedMet = v1.ResourceName(found.Threshold.Scope)
	return found, nil
}

// allocatable returns what is allocatable of reclaimed resources: by the CustomNodeResource, or by the Node for those
// that it does not have.
func (s *Set) allocatable(ctx context.Context) (v1.ResourceList, error) {
	resource, err := s.config.CustomNodeResource(ctx)
	if err != nil {
		return nil, err
	}
	node, err := s.config.Node(ctx)
	if err != nil {
		return nil, err
	}
	list := v1.ResourceList{}
	for _, name := range reclaimedresource.Resources {
		if q, ok := resource[name]; ok {
			list[name] = q
		} else if q, ok := node.Status.Allocatable[name]; ok {
			list[name] = q
		}
	}
	return list, nil
}

func (s *Set) numaMemory(_ context.Context, v *plugin.View) (rule.Finding, error) {
	settings := s.config.Settings()
	zones, unread := s.config.Zones.Zones()
	if len(zones) == 0 && unread != nil {
		return rule.Finding{}, unread
	}
	memory, unreadPods := s.config.NUMAMemory.ByNode(v.Pods)
	own := &settings.NUMAMemoryPressure
	facts := numamemory.Facts{Now: v.Taken, Zones: zones, Pods: v.Pods, Ending: ending(v), Memory: memory}
	var found rule.Finding
	found, s.numaState = numamemory.Decide(&facts, &numamemory.Settings{
		CriticalGap: own.CriticalGap.Value(), LowGap: own.LowGap.Value(), MinInactiveFile: own.MinInactiveFile.Value(),
		ReclaimedRounds: int(*own.ReclaimedRounds), AllRounds: int(*own.AllRounds),
		PodShare: rule.Permille(*own.PodPermille), Period: settings.Period, Levels: settings.Levels,
	}, s.numaState)
	found.Unread = []error{unread, unreadPods}
	return found, nil
}

func (s *Set) systemMemory(_ context.Context, v *plugin.View) (rule.Finding, error) {
	settings := s.config.Settings()
	node, unread := s.config.NodeMemory.Node()
	if err := node.Unknown(); err != nil {
		return rule.Finding{}, because(err, unread)
	}
	usage, unreadUsage := s.config.PodMemory.Usage(v.Pods)
	stalls, unreadStalls := s.config.PodMemory.Stalls(v.Pods)
	own := &settings.SystemMemoryPressure
	facts := systemmemory.Facts{
		Now: v.Taken, Node: node, Pods: v.Pods, Ending: ending(v), Usage: usage, Stalls: stalls,
	}
	var found rule.Finding
	found, s.systemState = systemmemory.Decide(&facts, &systemmemory.Settings{
		KswapdPages: float64(*own.KswapdPagesPerSecond), KswapdFor: own.KswapdFor.Duration,
		NodeStall: float64(*own.NodeStallPercent), PodStall: float64(*own.PodStallPercent),
		ReclaimedAfter: own.ReclaimedAfter.Duration, AllAfter: own.AllAfter.Duration, CoolDown: own.CoolDown.Duration,
		Period: settings.Period, Levels: settings.Levels,
	}, s.systemState)
	found.Unread = []error{unread, unreadUsage, unreadStalls}
	return found, nil
}

// because returns an error with what has led to it, if that is known.
func because(err, unread error) error {
	if unread == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, unread)
}

// NeedsAllPods reports whether one of these plugins is enabled that use what pods use by the last round of the eviction
// manager, which then must have all pods.
func NeedsAllPods(enabled func(name string) bool) bool {
	return enabled(rootfs.PressureName) || enabled(rootfs.OveruseName)
}

// errOldRound: what pods use of disks is unknown.
var errOldRound = errors.New("there is no round of the eviction manager of the last two monitoring periods")

// errAwaited: what pods use of disks is that of an earlier round.
var errAwaited = errors.New("the container runtime is slow: what pods use of disks has not been read yet")

// errSomePods: the round was made before a plugin was enabled that uses what all pods use.
var errSomePods = errors.New("the last round of the eviction manager has not all pods")

// rootfsFacts returns the facts of the last round of the eviction manager, unless they are too old.
func (s *Set) rootfsFacts(v *plugin.View, settings *Settings) (*rootfs.Facts, error) {
	if v.Node == nil || v.Taken.Sub(v.Node.Snapshot.Taken) > 2*settings.MonitoringPeriod {
		return nil, errOldRound
	}
	if !v.Node.AllPods {
		return nil, errSomePods
	}
	if v.Node.Snapshot.PodsAwaited {
		return nil, errAwaited
	}
	return rootfs.FactsOf(v.Node.Snapshot, v.Pods, ending(v)), nil
}

func (s *Set) rootfsPressure(_ context.Context, v *plugin.View) (rule.Finding, error) {
	settings := s.config.Settings()
	facts, err := s.rootfsFacts(v, &settings)
	if err != nil {
		return rule.Finding{}, err
	}
	own := &settings.RootfsPressure
	return rootfs.Pressure(facts, &rootfs.PressureSettings{
		Free:    [rootfs.NumKinds]v1alpha1.FileSystemAmount{own.Free, own.InodesFree},
		PodUsed: [rootfs.NumKinds]v1alpha1.FileSystemAmount{own.PodUsed, own.PodInodesUsed}, Levels: settings.Levels,
	}), nil
}

func (s *Set) rootfsOveruse(_ context.Context, v *plugin.View) (rule.Finding, error) {
	settings := s.config.Settings()
	facts, err := s.rootfsFacts(v, &settings)
	if err != nil {
		return rule.Finding{}, err
	}
	own := &settings.RootfsOveruse
	return rootfs.Overuse(facts, &rootfs.OveruseSettings{
		Shared:    [rootfs.NumKinds]v1alpha1.FileSystemAmount{own.SharedUsed, own.SharedInodesUsed},
		Reclaimed: [rootfs.NumKinds]v1alpha1.FileSystemAmount{own.ReclaimedUsed, own.ReclaimedInodesUsed},
		Levels:    settings.Levels,
	}), nil
}

func (s *Set) cpuPressure(_ context.Context, v *plugin.View) (found rule.Finding, err error) {
	settings := s.config.Settings()
	own := &settings.CPUPressure
	node, unread := s.config.CPU.Node()
	used, unreadPods := s.config.CPU.Used(v.Pods)
	facts := cpupressure.Facts{Now: v.Taken, Node: node, Pods: v.Pods, Ending: ending(v), Used: used}
	found, s.cpuState, err = cpupressure.Decide(&facts, &cpupressure.Settings{
		Stall: float64(*own.StallPercent), Busy: float64(*own.BusyPercent), Throttled: float64(*own.ThrottledPercent),
		Window: own.Window.Duration, PodCPU: float64(*own.PodPercent), Period: settings.Period, Levels: settings.Levels,
	}, s.cpuState)
	if err != nil {
		return rule.Finding{}, because(err, unread)
	}
	found.Unread = []error{unread, unreadPods}
	return found, nil
}
