package v1alpha1

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ofKubelet is a kubelet with an API server.
var ofKubelet = Kubelet{RootDirectory: "/var/lib/kubelet", Kubeconfig: "/etc/kubernetes/kubelet.conf"}

// expectOne fails the test unless there is one error that has all the texts.
func expectOne(t *testing.T, errs field.ErrorList, texts ...string) {
	t.Helper()
	if len(errs) != 1 {
		t.Errorf("%d errors, want one that says %q: %v", len(errs), texts, errs)
		return
	}
	for _, text := range texts {
		if !strings.Contains(errs[0].Error(), text) {
			t.Errorf("%v does not say %s", errs[0], text)
		}
	}
}

func TestDirectoriesDoNotOverlapWithTheRootDirectory(t *testing.T) {
	root := ofKubelet.RootDirectory
	for dir, valid := range map[string]bool{
		root: false, root + "/plugins_registry": false, root + "/plugins_registry/a": false, root + "/pods": false,
		"/var/lib": false, "/": false, "/var/lib/kubelet2": true, "/var/lib/katalyst/plugin-socks": true,
		"/run/plugins": true,
		"relative":     true, "": true, // Validate has an error for these, but for an absent softNoticeDirectory
	} {
		c := Default()
		c.Plugins.Directories = []string{dir}
		if errs := ValidateFor(c, ofKubelet); !valid {
			expectOne(t, errs, "plugins.directories[0]", dir, root, "plugins_registry")
		} else if len(errs) > 0 {
			t.Errorf("%s: %v", dir, errs)
		}
		c = Default()
		c.Plugins.Eviction.SoftNoticeDirectory = dir
		if errs := ValidateFor(c, ofKubelet); !valid {
			expectOne(t, errs, "plugins.eviction.softNoticeDirectory", dir, "must not be, contain, or be inside "+root)
		} else if len(errs) > 0 {
			t.Errorf("%s: %v", dir, errs)
		}
	}
}

func TestTaintsNeedAnotherIdentity(t *testing.T) {
	c := Default()
	c.Plugins.Eviction.Taints.Kubeconfig = ofKubelet.Kubeconfig
	expectOne(t, ValidateFor(c, ofKubelet), "plugins.eviction.taints.kubeconfig", ofKubelet.Kubeconfig,
		"must not be the kubeconfig of the kubelet itself", "must be that of another identity")
	c.Plugins.Eviction.Taints.Kubeconfig = "/etc/kubernetes/taints.conf"
	if errs := ValidateFor(c, ofKubelet); len(errs) > 0 {
		t.Error(errs)
	}
}

// Standalone rejects what needs an API server, and nothing else.
func TestStandalone(t *testing.T) {
	standalone := Kubelet{RootDirectory: ofKubelet.RootDirectory}
	for says, change := range map[string]func(*EvictionPluginsConfiguration){
		`forcedKiller|"EvictionAPI"|must be PodWorker`: func(e *EvictionPluginsConfiguration) {
			e.ForcedKiller = EvictionAPI
		},
		`forcedKiller|"DeleteAPI"|must be PodWorker`: func(e *EvictionPluginsConfiguration) { e.ForcedKiller = DeleteAPI },
		`softKiller|"EvictionAPI"|must be PodWorker`: func(e *EvictionPluginsConfiguration) { e.SoftKiller = EvictionAPI },
		`softKiller|"DeleteAPI"|must be PodWorker`:   func(e *EvictionPluginsConfiguration) { e.SoftKiller = DeleteAPI },
		`killerByQoSLevel[b]|"DeleteAPI"|must be PodWorker`: func(e *EvictionPluginsConfiguration) {
			e.KillerByQoSLevel = map[string]Killer{"a": PodWorker, "b": DeleteAPI}
		},
		`authentication|"Token"|must be SocketOwner or None`: func(e *EvictionPluginsConfiguration) {
			e.Authentication = TokenAuthentication
		},
		`taints.kubeconfig|"/taints.conf"|must be absent`: func(e *EvictionPluginsConfiguration) {
			e.Taints.Kubeconfig = "/taints.conf"
		},
	} {
		c := Default()
		change(&c.Plugins.Eviction)
		expectOne(t, ValidateFor(c, standalone),
			strings.Split("plugins.eviction."+says+"|there is no API server (standalone)", "|")...)
		if errs := append(ValidateFor(c, ofKubelet), Validate(c)...); len(errs) > 0 {
			t.Errorf("with an API server: %v", errs)
		}
	}
	c := Default()
	e := &c.Plugins.Eviction
	e.ForcedKiller, e.SoftKiller, e.Authentication = PodWorker, PodWorker, NoAuthentication
	e.KillerByQoSLevel = map[string]Killer{"reclaimed_cores": PodWorker}
	e.Taints.Effects, e.SoftNoticeDirectory = []TaintEffect{NoExecute}, "/run/notices"
	if errs := ValidateFor(c, standalone); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := ValidateFor(Default(), standalone); len(errs) > 0 {
		t.Errorf("the defaults: %v", errs)
	}
}

// An empty list of effects is not absent: it stays empty in a copy, and when defaults are set.
func TestNoEffects(t *testing.T) {
	c := Default()
	c.Plugins.Eviction.Taints.Effects = []TaintEffect{}
	c = c.DeepCopy()
	SetDefaults(c)
	if effects := c.Plugins.Eviction.Taints.Effects; effects == nil || len(effects) > 0 {
		t.Errorf("effects are %#v", effects)
	}
	if errs := Validate(c); len(errs) > 0 {
		t.Error(errs)
	}
}
