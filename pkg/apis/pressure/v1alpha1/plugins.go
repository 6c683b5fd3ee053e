package v1alpha1

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// maxPluginDirectories is the maximal number of plugins.directories.
	maxPluginDirectories = 8
	// maxDirectoryLength is the maximal length of such a path in bytes. The path of a socket has 107 at most, see unix(7).
	maxDirectoryLength = 100
	// maxPathLength is the maximal length of other paths in bytes: PATH_MAX of Linux without the zero byte at the end.
	maxPathLength = 4095
	// maxPluginEntries is the maximal number of entries in each list of plugins.eviction and plugins.reporter.
	maxPluginEntries = 64
	// maxPluginName is the maximal length of the name of a plugin, in bytes.
	maxPluginName = 63
)

// allPlugins is the entry that selects all plugins, exceptPlugin the prefix of one that excludes a plugin.
const (
	allPlugins   = "*"
	exceptPlugin = "-"
)

// Selects returns whether a list of plugins selects the one of this name: the name or "*" is in the list, and the name
// with a minus sign before it is not, in whatever order.
func Selects(list []string, name string) bool {
	return !slices.Contains(list, exceptPlugin+name) && (slices.Contains(list, name) || slices.Contains(list, allPlugins))
}

// CheckPluginName returns why a name is not that of a plugin, empty if it is.
func CheckPluginName(name string) string {
	if len(name) > maxPluginName || len(validation.IsQualifiedName(name)) > 0 {
		return fmt.Sprintf("must be a qualified name of at most %d characters, like memory or example.com/memory",
			maxPluginName)
	}
	return ""
}

func (v *validator) directories(p *field.Path, dirs []string) {
	if v.tooMany(p, len(dirs), maxPluginDirectories) {
		return
	}
	for i, dir := range dirs {
		at := p.Index(i)
		if !v.path(at, dir, maxDirectoryLength) {
			continue
		}
		for _, other := range dirs[:i] {
			if dir == other {
				v.errs = append(v.errs, field.Duplicate(at, dir))
			} else if overlap(dir, other) {
				v.invalid(at, dir, fmt.Sprintf("must not be inside or contain another directory of the list, %s", other))
			}
		}
	}
}

// path validates a path, and returns whether it is valid.
func (v *validator) path(p *field.Path, file string, maxLength int) bool {
	if path.IsAbs(file) && path.Clean(file) == file && len(file) <= maxLength &&
		!strings.ContainsFunc(file, unicode.IsControl) {
		return true
	}
	v.invalid(p, file, fmt.Sprintf("must be an absolute path of at most %d bytes, without control characters and "+
		"without elements that are empty, . or ..", maxLength))
	return false
}

func (v *validator) evictionPlugins(p *field.Path, e *EvictionPluginsConfiguration) {
	v.plugins(p.Child("remote"), e.Remote, remotePlugin(InTreePlugins()))
	v.plugins(p.Child("inTree"), e.InTree, inTreePlugin(InTreePlugins()))
	v.plugins(p.Child("dryRun"), e.DryRun, CheckPluginName)
	v.duration(p.Child("period"), e.Period, time.Second, time.Minute)
	v.duration(p.Child("callTimeout"), e.CallTimeout, 100*time.Millisecond, 10*time.Second)
	v.duration(p.Child("conditionTransitionPeriod"), e.ConditionTransitionPeriod, 0, time.Hour)
	if burst := *e.Burst; burst != -1 && (burst < 1 || burst > 100) {
		v.invalid(p.Child("burst"), burst, "must be from 1 to 100, or -1 for any number")
	}
	inRange(v, p.Child("maxInFlight"), *e.MaxInFlight, 1, 100)
	v.seconds(p.Child("maxGracePeriod"), e.MaxGracePeriod, time.Hour)
	v.entries(p.Child("skipAnnotationKeys"), e.SkipAnnotationKeys, checkAnnotationKey)
	v.entries(p.Child("skipLabelKeys"), e.SkipLabelKeys, checkKey)
	v.entries(p.Child("skipOwnerKinds"), e.SkipOwnerKinds, checkKind)
	v.qosLevel(p.Child("qosLevel"), &e.QoSLevel)
	v.killers(p, e)
	oneOf(v, p.Child("authentication"), e.Authentication, pluginAuthentications)
	v.taints(p.Child("taints"), &e.Taints)
	v.pluginSettings(p.Child("settings"), &e.Settings)
}

func (v *validator) pluginSettings(p *field.Path, s *PluginSettings) {
	v.duration(p.Child(MemoryGrowthPlugin, "horizon"), s.MemoryGrowth.Horizon, 10*time.Second, 10*time.Minute)

	at := p.Child(ReclaimedResourcePressurePlugin)
	inRange(v, at.Child("requestedPercent"), *s.ReclaimedResourcePressure.RequestedPercent, 1, 100_000)
	v.duration(at.Child("metFor"), s.ReclaimedResourcePressure.MetFor, 0, time.Hour)
	v.seconds(at.Child("gracePeriod"), s.ReclaimedResourcePressure.GracePeriod, 10*time.Minute)

	inRange(v, p.Child(RSSOverusePlugin, "residentPercent"), *s.RSSOveruse.ResidentPercent, 1, 100_000)
	v.rootfs(p, s)
	v.cpu(p.Child(CPUPressurePlugin), &s.CPUPressure)
	v.numaMemory(p.Child(NUMAMemoryPressurePlugin), &s.NUMAMemoryPressure)
	v.systemMemory(p.Child(SystemMemoryPressurePlugin), &s.SystemMemoryPressure)
}

func (v *validator) rootfs(p *field.Path, s *PluginSettings) {
	pressure, overuse := p.Child(RootfsPressurePlugin), p.Child(RootfsOverusePlugin)
	v.fileSystemAmount(pressure.Child("free"), s.RootfsPressure.Free)
	v.fileSystemAmount(pressure.Child("inodesFree"), s.RootfsPressure.InodesFree)
	v.fileSystemAmount(pressure.Child("podUsed"), s.RootfsPressure.PodUsed)
	v.fileSystemAmount(pressure.Child("podInodesUsed"), s.RootfsPressure.PodInodesUsed)
	v.fileSystemAmount(overuse.Child("sharedUsed"), s.RootfsOveruse.SharedUsed)
	v.fileSystemAmount(overuse.Child("sharedInodesUsed"), s.RootfsOveruse.SharedInodesUsed)
	v.fileSystemAmount(overuse.Child("reclaimedUsed"), s.RootfsOveruse.ReclaimedUsed)
	v.fileSystemAmount(overuse.Child("reclaimedInodesUsed"), s.RootfsOveruse.ReclaimedInodesUsed)
}

func (v *validator) fileSystemAmount(p *field.Path, a FileSystemAmount) {
	if _, _, valid := a.parse(); a != "" && !valid {
		v.invalid(p, string(a), "must be a quantity above 0, like 10Gi, or a percentage above 0% and up to 100%, like 10%")
	}
}

func (v *validator) cpu(p *field.Path, s *CPUPressureSettings) {
	inRange(v, p.Child("stallPercent"), *s.StallPercent, 1, 100)
	inRange(v, p.Child("busyPercent"), *s.BusyPercent, 0, 100)
	inRange(v, p.Child("throttledPercent"), *s.ThrottledPercent, 1, 100)
	v.duration(p.Child("window"), s.Window, 5*time.Second, time.Hour)
	inRange(v, p.Child("podPercent"), *s.PodPercent, 0, 100)
}

func (v *validator) numaMemory(p *field.Path, s *NUMAMemoryPressureSettings) {
	v.quantity(p.Child("criticalGap"), s.CriticalGap, "0", "1Ti")
	v.quantity(p.Child("lowGap"), s.LowGap, "0", "1Ti")
	v.quantity(p.Child("minInactiveFile"), s.MinInactiveFile, "0", "1Ti")
	inRange(v, p.Child("reclaimedRounds"), *s.ReclaimedRounds, 0, 1000)
	inRange(v, p.Child("allRounds"), *s.AllRounds, 1, 1000)
	inRange(v, p.Child("podPermille"), *s.PodPermille, 0, 1000)
}

func (v *validator) systemMemory(p *field.Path, s *SystemMemoryPressureSettings) {
	inRange(v, p.Child("kswapdPagesPerSecond"), *s.KswapdPagesPerSecond, 1, 100_000_000)
	v.duration(p.Child("kswapdFor"), s.KswapdFor, time.Second, time.Hour)
	inRange(v, p.Child("nodeStallPercent"), *s.NodeStallPercent, 1, 100)
	inRange(v, p.Child("podStallPercent"), *s.PodStallPercent, 0, 100)
	v.duration(p.Child("reclaimedAfter"), s.ReclaimedAfter, 0, time.Hour)
	v.duration(p.Child("allAfter"), s.AllAfter, 0, time.Hour)
	v.duration(p.Child("coolDown"), s.CoolDown, 0, time.Hour)
	all, reclaimed := s.AllAfter.Duration, s.ReclaimedAfter.Duration
	if all >= 0 && all < reclaimed && reclaimed <= time.Hour {
		v.invalid(p.Child("allAfter"), all.String(), fmt.Sprintf(
			"must be at least reclaimedAfter, which is %s: reclaimed pods are requested before others", reclaimed))
	}
}

// seconds validates a grace period, which the API counts in seconds.
func (v *validator) seconds(p *field.Path, d *metav1.Duration, most time.Duration) {
	v.duration(p, d, time.Second, most)
	if grace := d.Duration; grace > time.Second && grace < most && grace%time.Second != 0 {
		v.invalid(p, grace.String(), "must be whole seconds")
	}
}

func (v *validator) qosLevel(p *field.Path, l *PluginQoSLevel) {
	if l.Label != "" {
		if why := checkKey(l.Label); why != "" {
			v.invalid(p.Child("label"), l.Label, why)
		}
	} else if len(l.LabelValues) > 0 {
		v.errs = append(v.errs, field.Required(p.Child("label"), "must be the key of the label that labelValues are for"))
	}
	for name, levels := range map[string]map[string]QoSLevel{
		"labelValues": l.LabelValues, "priorityClasses": l.PriorityClasses,
	} {
		at := p.Child(name)
		if v.tooMany(at, len(levels), maxPluginEntries) {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(levels)) {
			oneOf(v, at.Key(key), levels[key], qosLevels)
		}
	}
}

func (v *validator) killers(p *field.Path, e *EvictionPluginsConfiguration) {
	oneOf(v, p.Child("forcedKiller"), e.ForcedKiller, killers)
	if e.SoftKiller != "" {
		oneOf(v, p.Child("softKiller"), e.SoftKiller, killers)
	}
	p = p.Child("killerByQoSLevel")
	if v.tooMany(p, len(e.KillerByQoSLevel), maxPluginEntries) {
		return
	}
	for _, level := range slices.Sorted(maps.Keys(e.KillerByQoSLevel)) {
		at := p.Key(level)
		switch {
		case level == string(SystemCores):
			v.invalid(at, level, "must be another level: plugins may not request pods of this one to be evicted")
		case level == "" || len(validation.IsValidLabelValue(level)) > 0:
			v.invalid(at, level, "must be a level of at most 63 letters, digits, -, _ and ., with a letter or digit at both "+
				"ends, like reclaimed_cores")
		}
		oneOf(v, at, e.KillerByQoSLevel[level], killers)
	}
}

func (v *validator) taints(p *field.Path, t *PluginTaints) {
	if at := p.Child("effects"); !v.tooMany(at, len(t.Effects), len(taintEffects)) {
		for i, effect := range t.Effects {
			oneOf(v, at.Index(i), effect, taintEffects)
			if slices.Contains(t.Effects[:i], effect) {
				v.errs = append(v.errs, field.Duplicate(at.Index(i), effect))
			}
		}
	}
	if t.Kubeconfig != "" {
		v.path(p.Child("kubeconfig"), t.Kubeconfig, maxPathLength)
	}
}

// ownDirectory rejects a directory of plugins, where files of others are, and the directories in and around it.
func (v *validator) ownDirectory(p *field.Path, dir string, plugins []string) {
	if dir == "" || !v.path(p, dir, maxPathLength) {
		return
	}
	if dir == "/" {
		v.invalid(p, dir, "must not be the root of the file system: must be a directory of its own")
		return
	}
	for _, other := range plugins {
		if path.IsAbs(other) && overlap(dir, other) {
			v.invalid(p, dir, fmt.Sprintf("must not be, contain, or be inside %s, one of plugins.directories", other))
			return
		}
	}
}

// plugins validates a list that selects plugins. check is that of names, and empty for a valid one.
func (v *validator) plugins(p *field.Path, list []string, check func(string) string) {
	v.entries(p, list, func(entry string) string {
		if entry == allPlugins {
			return ""
		}
		if why := check(strings.TrimPrefix(entry, exceptPlugin)); why != "" {
			return why + `; or "*" for all, or such a name after "-" to exclude it`
		}
		return ""
	})
}

// entries validates a list without duplicates. check returns why an entry is not valid.
func (v *validator) entries(p *field.Path, list []string, check func(string) string) {
	if v.tooMany(p, len(list), maxPluginEntries) {
		return
	}
	for i, entry := range list {
		if why := check(entry); why != "" {
			v.invalid(p.Index(i), entry, why)
		} else if slices.Contains(list[:i], entry) {
			v.errs = append(v.errs, field.Duplicate(p.Index(i), entry))
		}
	}
}

func (v *validator) tooMany(p *field.Path, n, most int) bool {
	if n > most {
		v.errs = append(v.errs, field.TooMany(p, n, most))
	}
	return n > most
}

// remotePlugin returns the check of names of plugins behind sockets. It rejects those of plugins in this kubelet too,
// since no other plugin can register with them.
func remotePlugin(inTree []string) func(name string) string {
	return func(name string) string {
		if slices.Contains(inTree, name) {
			return "must not be a plugin of this kubelet, which is enabled in inTree; must be the name of another one"
		}
		return CheckPluginName(name)
	}
}

// inTreePlugin returns the check of names of plugins in this kubelet.
func inTreePlugin(inTree []string) func(name string) string {
	return func(name string) string {
		if slices.Contains(inTree, name) {
			return ""
		}
		return "must be the name of a plugin of this kubelet: " + strings.Join(inTree, ", ")
	}
}

// checkAnnotationKey is as in the API, where keys of annotations may have capital letters before the slash.
func checkAnnotationKey(key string) string { return checkKey(strings.ToLower(key)) }

func checkKey(key string) string {
	if len(validation.IsQualifiedName(key)) > 0 {
		return "must be a key of at most 63 characters, which may begin with a domain and a slash, like example.com/keep"
	}
	return ""
}

// checkKind is the check of kinds in a CustomResourceDefinition.
func checkKind(kind string) string {
	if len(validation.IsDNS1035Label(strings.ToLower(kind))) > 0 {
		return "must be the kind of a controller without its group, like DaemonSet"
	}
	return ""
}
