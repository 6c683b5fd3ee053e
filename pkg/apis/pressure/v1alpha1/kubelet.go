package v1alpha1

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Kubelet has the settings of the kubelet that a configuration is checked against.
//
// +k8s:deepcopy-gen=false
type Kubelet struct {
	// RootDirectory is the absolute path of the root directory.
	RootDirectory string
	// Kubeconfig is the absolute path of the kubelet's own kubeconfig. It is empty in standalone mode: there is no API
	// server.
	Kubeconfig string
}

// Standalone returns whether the kubelet has no API server.
func (k Kubelet) Standalone() bool { return k.Kubeconfig == "" }

// ValidateFor returns an error for each field of a configuration, after defaulting, that this kubelet cannot have,
// whatever Validate returns. Paths are compared as text: symbolic links are not resolved.
func ValidateFor(c *NodePressureConfiguration, k Kubelet) field.ErrorList {
	v := &validator{}
	p := field.NewPath("plugins")
	v.outsideRoot(p, &c.Plugins, k.RootDirectory)
	v.notInRoot(field.NewPath("decisionLog", "directory"), c.DecisionLog.Directory, k.RootDirectory)
	v.taintsIdentity(p.Child("eviction", "taints", "kubeconfig"), c.Plugins.Eviction.Taints.Kubeconfig, k)
	if k.Standalone() {
		v.withoutAPIServer(p.Child("eviction"), &c.Plugins.Eviction)
		v.nothingPublished(p.Child("reporter", "publish"), c.Plugins.Reporter.Publish)
	}
	return v.errs
}

// outsideRoot rejects directories that overlap with the root directory, which has the sockets of other plugins, and
// volumes whose content is that of pods.
func (v *validator) outsideRoot(p *field.Path, c *PluginsConfiguration, root string) {
	for i, dir := range c.Directories {
		if path.IsAbs(dir) && overlap(dir, root) {
			v.invalid(p.Child("directories").Index(i), dir,
				fmt.Sprintf(overlaps+": its plugins_registry is always a directory of plugins", root))
		}
	}
	v.notInRoot(p.Child("eviction", "softNoticeDirectory"), c.Eviction.SoftNoticeDirectory, root)
}

// overlaps is why a directory is rejected.
const overlaps = "must not be, contain, or be inside %s, the root directory of this kubelet"

func (v *validator) notInRoot(p *field.Path, dir, root string) {
	if path.IsAbs(dir) && overlap(dir, root) {
		v.invalid(p, dir, fmt.Sprintf(overlaps, root))
	}
}

// taintsIdentity rejects the kubelet's own kubeconfig: the admission plugin NodeRestriction forbids a kubelet to change
// the taints of its Node.
func (v *validator) taintsIdentity(p *field.Path, kubeconfig string, k Kubelet) {
	if kubeconfig != "" && kubeconfig == k.Kubeconfig {
		v.invalid(p, kubeconfig, "must not be the kubeconfig of the kubelet itself, which may not change taints of its "+
			"Node: must be that of another identity")
	}
}

// noAPIServer is why a standalone kubelet rejects a value.
const noAPIServer = "there is no API server (standalone): "

// withoutAPIServer rejects what needs an API server.
func (v *validator) withoutAPIServer(p *field.Path, e *EvictionPluginsConfiguration) {
	v.killerWithoutAPIServer(p.Child("forcedKiller"), e.ForcedKiller)
	v.killerWithoutAPIServer(p.Child("softKiller"), e.SoftKiller)
	if len(e.KillerByQoSLevel) <= maxPluginEntries {
		for _, level := range slices.Sorted(maps.Keys(e.KillerByQoSLevel)) {
			v.killerWithoutAPIServer(p.Child("killerByQoSLevel").Key(level), e.KillerByQoSLevel[level])
		}
	}
	if e.Authentication == TokenAuthentication {
		v.invalid(p.Child("authentication"), e.Authentication,
			fmt.Sprintf("%smust be %s or %s", noAPIServer, SocketOwner, NoAuthentication))
	}
	if file := e.Taints.Kubeconfig; file != "" {
		v.invalid(p.Child("taints", "kubeconfig"), file, noAPIServer+"must be absent")
	}
}

// nothingPublished rejects the objects of reporter plugins.
func (v *validator) nothingPublished(p *field.Path, kinds []ReportedKind) {
	if len(kinds) <= maxPluginEntries {
		for i, kind := range kinds {
			v.invalid(p.Index(i), kind, noAPIServer+"must be absent")
		}
	}
}

func (v *validator) killerWithoutAPIServer(p *field.Path, k Killer) {
	if k == EvictionAPI || k == DeleteAPI {
		v.invalid(p, k, noAPIServer+"must be "+string(PodWorker))
	}
}

// overlap reports whether one of two clean absolute paths is inside the other, or equal to it.
func overlap(a, b string) bool {
	inside := func(a, b string) bool { return strings.HasPrefix(a+"/", strings.TrimSuffix(b, "/")+"/") }
	return inside(a, b) || inside(b, a)
}
