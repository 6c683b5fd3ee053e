package v1alpha1

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// invalidPlugins are lists and values that are rejected, with parts of the error. Bounds of ranges are in
// TestCommentsMatchRanges.
func invalidPlugins() map[string]func(*PluginsConfiguration) {
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf("plugin%d", i)
	}
	long := strings.Repeat("a", 64)
	directories := func(dirs ...string) func(*PluginsConfiguration) {
		return func(p *PluginsConfiguration) { p.Directories = dirs }
	}
	remote := func(names ...string) func(*PluginsConfiguration) {
		return func(p *PluginsConfiguration) { p.Eviction.Remote = names }
	}
	return map[string]func(*PluginsConfiguration){
		`directories[0]|"a/b"|must be an absolute path of at most 100 bytes`:   directories("a/b"),
		`directories[1]|""|must be an absolute path`:                           directories("/a", ""),
		`directories[0]|"/a/"|elements that are empty, . or ..`:                directories("/a/"),
		`directories[0]|"/a/../b"|elements that are empty, . or ..`:            directories("/a/../b"),
		`directories[0]|control characters`:                                    directories("/a\n"),
		`directories[0]|at most 100 bytes`:                                     directories("/" + strings.Repeat("a", 100)),
		`directories[2]|Duplicate value: "/a"`:                                 directories("/a", "/b", "/a"),
		`directories[1]|"/a/b"|must not be inside or contain another|list, /a`: directories("/a", "/a/b"),
		`directories[1]|"/a"|must not be inside or contain another|list, /a/b`: directories("/a/b", "/a"),
		`directories: Too many: 9: must have at most 8 items`: directories("/1", "/2", "/3", "/4", "/5",
			"/6", "/7", "/8", "/9"),
		`eviction.remote[0]|""|must be a qualified name of at most 63`:           remote(""),
		`eviction.remote[1]|"a b"|qualified name|"*" for all|after "-"`:          remote("a", "a b"),
		`eviction.remote[0]|"-*"|qualified name|"*" for all`:                     remote("-*"),
		`eviction.remote[0]|"--a"|qualified name`:                                remote("--a"),
		`eviction.remote[0]|at most 63 characters`:                               remote("example.com/" + long[:52]),
		`eviction.remote[0]|"-` + long + `"|at most 63`:                          remote("-" + long),
		`eviction.remote[1]|Duplicate value: "*"`:                                remote("*", "*"),
		`eviction.remote[0]|"memory-growth"|must not be a plugin of this|inTree`: remote("memory-growth"),
		`eviction.remote: Too many: 65: must have at most 64 items`:              remote(many...),
		`eviction.inTree[0]|"numa"|must be the name of a plugin of this kubelet|, memory-growth, |"*" for all`: func(
			p *PluginsConfiguration) {
			p.Eviction.InTree = []string{"numa"}
		},
		`eviction.inTree[0]|"-numa"|memory-growth`: func(p *PluginsConfiguration) {
			p.Eviction.InTree = []string{"-numa"}
		},
		`eviction.dryRun[0]|"a/b/c"|qualified name`: func(p *PluginsConfiguration) {
			p.Eviction.DryRun = []string{"a/b/c"}
		},
		`eviction.burst|0|must be from 1 to 100, or -1 for any number`: func(p *PluginsConfiguration) {
			p.Eviction.Burst = new(int32(0))
		},
		`eviction.maxGracePeriod|"1.5s"|must be whole seconds`: func(p *PluginsConfiguration) {
			p.Eviction.MaxGracePeriod = &metav1.Duration{Duration: 1500 * time.Millisecond}
		},
		`eviction.settings.memory-growth.horizon|"1s"|must be from 10s to 10m`: func(p *PluginsConfiguration) {
			p.Eviction.Settings.MemoryGrowth.Horizon = &metav1.Duration{Duration: time.Second}
		},
		`eviction.settings.reclaimed-resource-pressure-eviction-plugin.gracePeriod|"1.5s"|must be whole seconds`: func(
			p *PluginsConfiguration) {
			p.Eviction.Settings.ReclaimedResourcePressure.GracePeriod = &metav1.Duration{Duration: 1500 * time.Millisecond}
		},
		`eviction.settings.system-memory-pressure-eviction-plugin.allAfter|"45s"|at least reclaimedAfter, which is 1m`: func(
			p *PluginsConfiguration) {
			p.Eviction.Settings.SystemMemoryPressure.ReclaimedAfter = &metav1.Duration{Duration: time.Minute}
		},
		`eviction.settings.rootfs-pressure-eviction-plugin.free|"101%"|a quantity above 0, like 10Gi, or a percentage`: func(
			p *PluginsConfiguration) {
			p.Eviction.Settings.RootfsPressure.Free = "101%"
		},
		`eviction.settings.rootfs-overuse-eviction-plugin.sharedUsed|"-1Gi"|must be a quantity above 0`: func(
			p *PluginsConfiguration) {
			p.Eviction.Settings.RootfsOveruse.SharedUsed = "-1Gi"
		},
		`eviction.qosLevel.label|"a b"|must be a key of at most 63`: func(p *PluginsConfiguration) {
			p.Eviction.QoSLevel.Label = "a b"
		},
		`eviction.qosLevel.label|Required value|key of the label that labelValues are for`: func(p *PluginsConfiguration) {
			p.Eviction.QoSLevel.LabelValues = map[string]QoSLevel{"batch": ReclaimedCores}
		},
		`eviction.authentication|"mTLS"|supported values: "SocketOwner", "Token", "None"`: func(p *PluginsConfiguration) {
			p.Eviction.Authentication = "mTLS"
		},
		`eviction.skipAnnotationKeys[0]|"a b"|must be a key of at most 63`: func(p *PluginsConfiguration) {
			p.Eviction.SkipAnnotationKeys = []string{"a b"}
		},
		`eviction.skipLabelKeys[0]|"Example.com/a"|must be a key`: func(p *PluginsConfiguration) {
			p.Eviction.SkipLabelKeys = []string{"Example.com/a"}
		},
		`eviction.skipLabelKeys[1]|Duplicate value: "a"`: func(p *PluginsConfiguration) {
			p.Eviction.SkipLabelKeys = []string{"a", "a"}
		},
		`eviction.skipOwnerKinds[0]|"apps/DaemonSet"|kind of a controller without its group`: func(p *PluginsConfiguration) {
			p.Eviction.SkipOwnerKinds = []string{"apps/DaemonSet"}
		},
		`eviction.skipOwnerKinds: Too many: 65|at most 64`: func(p *PluginsConfiguration) {
			p.Eviction.SkipOwnerKinds = many
		},
	}
}

// invalidKillers are invalid settings of what happens to requested pods, and of taints.
func invalidKillers() map[string]func(*PluginsConfiguration) {
	byLevel := func(level string, k Killer) func(*PluginsConfiguration) {
		return func(p *PluginsConfiguration) { p.Eviction.KillerByQoSLevel = map[string]Killer{level: k} }
	}
	effects := func(list ...TaintEffect) func(*PluginsConfiguration) {
		return func(p *PluginsConfiguration) { p.Eviction.Taints.Effects = list }
	}
	kubeconfig := func(file string) func(*PluginsConfiguration) {
		return func(p *PluginsConfiguration) { p.Eviction.Taints.Kubeconfig = file }
	}
	notices := func(dir string, plugins ...string) func(*PluginsConfiguration) {
		return func(p *PluginsConfiguration) { p.Eviction.SoftNoticeDirectory, p.Directories = dir, plugins }
	}
	long := strings.Repeat("a", 64)
	return map[string]func(*PluginsConfiguration){
		`eviction.forcedKiller|"podWorker"|supported values: "PodWorker", "EvictionAPI", "DeleteAPI"`: func(
			p *PluginsConfiguration) {
			p.Eviction.ForcedKiller = "podWorker"
		},
		`eviction.softKiller|"Container"|supported values: "PodWorker", "EvictionAPI", "DeleteAPI"`: func(
			p *PluginsConfiguration) {
			p.Eviction.SoftKiller = "Container"
		},
		`eviction.killerByQoSLevel[shared_cores]|""|supported values: "PodWorker", "EvictionAPI", "DeleteAPI"`: byLevel(
			"shared_cores", ""),
		`eviction.killerByQoSLevel[]|""|must be a level of at most 63 letters|like reclaimed_cores`: byLevel("", PodWorker),
		`eviction.killerByQoSLevel[` + long + `]|"` + long + `"|at most 63`:                         byLevel(long, PodWorker),
		`eviction.killerByQoSLevel[a b]|"a b"|letters, digits, -, _ and .`: byLevel(
			"a b", PodWorker),
		`eviction.killerByQoSLevel[-a]|"-a"|letter or digit at both ends`: byLevel("-a", PodWorker),
		`eviction.killerByQoSLevel[system_cores]|"system_cores"|must be another level|may not request`: byLevel(
			"system_cores", PodWorker),
		`eviction.killerByQoSLevel: Too many: 65: must have at most 64 items`: func(p *PluginsConfiguration) {
			p.Eviction.KillerByQoSLevel = map[string]Killer{}
			for i := range 65 {
				p.Eviction.KillerByQoSLevel[fmt.Sprintf("level%d", i)] = PodWorker
			}
		},
		`eviction.taints.effects[1]|"Evict"|"NoSchedule", "PreferNoSchedule", "NoExecute"`: effects(NoSchedule, "Evict"),
		`eviction.taints.effects[0]|""|supported values`:                                   effects(""),
		`eviction.taints.effects[2]|Duplicate value: "NoExecute"`: effects(
			NoExecute, NoSchedule, NoExecute),
		`eviction.taints.effects: Too many: 4: must have at most 3 items`:                   effects("", "", "", ""),
		`eviction.taints.kubeconfig|"taints.conf"|must be an absolute path of at most 4095`: kubeconfig("taints.conf"),
		`eviction.taints.kubeconfig|"/a/./b"|elements that are empty, . or ..`:              kubeconfig("/a/./b"),
		`eviction.taints.kubeconfig|"/a\tb"|without control characters`:                     kubeconfig("/a\tb"),
		`eviction.taints.kubeconfig|at most 4095 bytes`: kubeconfig(
			"/" + strings.Repeat("a", 4095)),
		`eviction.softNoticeDirectory|"a"|must be an absolute path of at most 4095`: notices("a"),
		`eviction.softNoticeDirectory|"/a/"|elements that are empty, . or ..`:       notices("/a/"),
		`eviction.softNoticeDirectory|"/a\n"|without control characters`:            notices("/a\n"),
		`eviction.softNoticeDirectory|at most 4095 bytes`: notices(
			"/" + strings.Repeat("a", 4095)),
		`eviction.softNoticeDirectory|"/"|must not be the root of the file system`: notices("/"),
		`eviction.softNoticeDirectory|"/b"|must not be, contain, or be inside /b, one of plugins.directories`: notices("/b",
			"/a", "/b"),
		`eviction.softNoticeDirectory|"/b/c"|must not be, contain, or be inside /b,`: notices("/b/c", "/a", "/b"),
		`eviction.softNoticeDirectory|"/b"|must not be, contain, or be inside /b/c,`: notices("/b", "/a", "/b/c", "/b/d"),
	}
}

// An error has the path of its field, its value and the allowed values.
func TestValidatePlugins(t *testing.T) {
	invalid := invalidPlugins()
	maps.Copy(invalid, invalidKillers())
	for says, change := range invalid {
		c := Default()
		change(&c.Plugins)
		errs := Validate(c)
		if len(errs) != 1 {
			t.Errorf("%s: %d errors, want one: %v", says, len(errs), errs)
			continue
		}
		for _, want := range strings.Split("plugins."+says, "|") {
			if text := errs[0].Error(); !strings.Contains(text, want) {
				t.Errorf("%s does not say %s", text, want)
			}
		}
	}
}

func TestValidPlugins(t *testing.T) {
	c := Default()
	c.Plugins.Directories = []string{"/1", "/2", "/3", "/4", "/5", "/6", "/a", "/aa"}
	e := &c.Plugins.Eviction
	e.Remote = []string{"*", "-a", "a", "example.com/" + strings.Repeat("a", 51), "-example.com/memory_2.x"}
	e.InTree = []string{"*", "memory-growth", "-memory-growth"}
	e.DryRun = []string{"*", "memory-growth", "a", "-b"}
	e.Burst = new(int32(1))
	e.MaxGracePeriod = &metav1.Duration{Duration: 2 * time.Second}
	e.SkipAnnotationKeys = []string{"Example.com/keep", "keep"}
	e.SkipLabelKeys = []string{"example.com/keep", "keep"}
	e.SkipOwnerKinds = []string{"DaemonSet", "CloneSet"}
	e.ForcedKiller, e.SoftKiller, e.Authentication = DeleteAPI, EvictionAPI, TokenAuthentication
	e.KillerByQoSLevel = map[string]Killer{"reclaimed_cores": PodWorker, strings.Repeat("a", 63): DeleteAPI}
	e.Taints = PluginTaints{Effects: []TaintEffect{NoExecute, NoSchedule, PreferNoSchedule},
		Kubeconfig: "/" + strings.Repeat("a", 4094)}
	e.SoftNoticeDirectory = "/aaa"
	if errs := Validate(c); len(errs) > 0 {
		t.Error(errs)
	}
}

// Defaulting enables no plugin, and the names of plugins in the tree are valid and sorted.
func TestNoPluginIsEnabledByDefault(t *testing.T) {
	p := Default().Plugins
	if len(p.Directories)+len(p.Eviction.Remote)+len(p.Eviction.InTree) > 0 {
		t.Errorf("%+v", p)
	}
	if names := InTreePlugins(); !slices.IsSorted(names) || slices.ContainsFunc(names, func(name string) bool {
		return CheckPluginName(name) != ""
	}) {
		t.Errorf("plugins in the tree: %q", names)
	}
}

// TestFileSystemAmount: quantities and percentages, and what is neither.
func TestFileSystemAmount(t *testing.T) {
	for text, want := range map[FileSystemAmount]int64{
		"1": 1, "10Gi": 10 << 30, "1k": 1000, "50%": 500, "0.1%": 1, "100%": 1000, "0.05%": 0, "99.999%": 999,
		"1152921504606846976": 1 << 60,
	} {
		if got, set := text.Of(1000); !set || got != want {
			t.Errorf("%s: %d, %t", text, got, set)
		}
	}
	for _, text := range []FileSystemAmount{
		"", "%", "0", "0%", "-1", "-1%", "101%", "1Gi%", "1e1%", "many", "10 %", "1152921504606846977", "5%%",
	} {
		if got, set := text.Of(1000); set {
			t.Errorf("%s: %d", text, got)
		}
	}
	if got, _ := FileSystemAmount("50%").Of(math.MaxInt64); got != math.MaxInt64/2 {
		t.Errorf("of all: %d", got)
	}
	if got, _ := FileSystemAmount("50%").Of(-5); got != 0 {
		t.Errorf("of a negative capacity: %d", got)
	}
}
