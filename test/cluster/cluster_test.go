package cluster

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

func testCluster(t *testing.T) *Cluster {
	t.Helper()
	layout := NewLayout(t.TempDir(), "test")
	if err := layout.makeDirs(); err != nil {
		t.Fatal(err)
	}
	m := machine{nodeIP: net.IPv4(192, 0, 2, 1), memory: 24 << 30, snapshotter: "overlayfs", pluginDir: "/usr/lib/cni"}
	return &Cluster{config: Config{Layout: layout, Kubelet: "/kubelet", Log: io.Discard}, machine: m}
}

func TestEverythingListensOnLoopbackButTheKubelet(t *testing.T) {
	layout := NewLayout("/repository", "test")
	for _, command := range []struct {
		args []string
		want string
	}{
		{layout.etcd().Args, "--listen-client-urls=http://127.0.0.1:"},
		{layout.apiServer(loopback).Args, "--bind-address=127.0.0.1"},
		{layout.scheduler().Args, "--bind-address=127.0.0.1"},
		{layout.controllerManager().Args, "--bind-address=127.0.0.1"},
	} {
		if text := strings.Join(command.args, " "); !strings.Contains(text, command.want) {
			t.Errorf("%q is not in %s", command.want, text)
		}
	}
}

func TestKubeletConfigReservesAllButThePodsMemory(t *testing.T) {
	c := testCluster(t)
	c.config.Tune = func(config *kubeletv1beta1.KubeletConfiguration) { config.MaxPods = 7 }
	if err := c.writeKubeletConfig(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(c.config.Layout.config("kubelet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var config kubeletv1beta1.KubeletConfiguration
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		t.Fatal(err)
	}
	if got := config.SystemReserved["memory"]; got != "23068672Ki" {
		t.Errorf("%s reserved, want 22 GiB", got)
	}
	if got := config.EvictionHard["memory.available"]; got != "512Mi" {
		t.Errorf("threshold is %s", got)
	}
	if config.MaxPods != 7 {
		t.Error("the configuration was not tuned")
	}
}

func TestSmallMachineGivesHalfItsMemory(t *testing.T) {
	if got := (machine{memory: 3 << 30}).podMemory(); got != 3<<29 {
		t.Errorf("pods may use %d bytes", got)
	}
}

func TestCredentials(t *testing.T) {
	c := testCluster(t)
	if err := writeCredentials(c.config, c.machine.nodeIP); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.config.Layout.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:7443" || len(config.CertData) == 0 {
		t.Errorf("administrator's configuration is for %s", config.Host)
	}
	info, err := os.Stat(c.config.Layout.pki("ca.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key of the authority: %v, %v", info.Mode(), err)
	}
}

func TestContainerdConfigStaysInTheClustersFolder(t *testing.T) {
	c := testCluster(t)
	if err := writeContainerdConfig(c.config, c.machine); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(c.config.Layout.config("containerd.toml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if strings.Contains(text, "%!") || !strings.Contains(text, `conf_dir = "`+c.config.Layout.config("cni")+`"`) {
		t.Errorf("configuration is\n%s", text)
	}
}

func TestCleanOfNothingDoesNothing(t *testing.T) {
	layout := NewLayout(filepath.Join(t.TempDir(), "none"), "test")
	if err := Clean(context.Background(), layout, nil); err != nil {
		t.Error(err)
	}
}

func TestFindRoot(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := FindRoot(deep)
	if err != nil || got != root {
		t.Errorf("FindRoot = %q, %v; want %q", got, err, root)
	}
}

// TestKubeletOfAnotherConfigurationIsNotTheFirst starts programs in the place of the kubelet, one for each thing by
// which it can differ from the one that the cluster was started with.
func TestKubeletOfAnotherConfigurationIsNotTheFirst(t *testing.T) {
	program := filepath.Join(t.TempDir(), "kubelet")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nexec sleep 600\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	more := func(config *kubeletv1beta1.KubeletConfiguration) { config.MaxPods = 7 }
	for name, test := range map[string]struct {
		// change applies when the program is started, restore afterwards.
		change, restore func(*testing.T, *Cluster)
		want            bool
	}{
		"the first":     {want: true},
		"of no process": {restore: func(t *testing.T, c *Cluster) { stopProgram(t, c) }},
		"another program": {
			change:  func(_ *testing.T, c *Cluster) { c.SetKubelet(filepath.Dir(program) + "/./kubelet") },
			restore: func(_ *testing.T, c *Cluster) { c.SetKubelet(program) },
		},
		"a flag": {
			change:  func(_ *testing.T, c *Cluster) { c.SetKubeletArgs([]string{"--v=4"}) },
			restore: func(_ *testing.T, c *Cluster) { c.SetKubeletArgs(nil) },
		},
		"a variable": {
			change:  func(_ *testing.T, c *Cluster) { c.SetKubeletEnv([]string{"A=b"}) },
			restore: func(_ *testing.T, c *Cluster) { c.SetKubeletEnv(nil) },
		},
		"a variable of this process": {
			change:  func(t *testing.T, _ *Cluster) { t.Setenv("PLIMSOLL_TEST", "before") },
			restore: func(t *testing.T, _ *Cluster) { t.Setenv("PLIMSOLL_TEST", "after") },
		},
		"no API server": {
			change:  func(_ *testing.T, c *Cluster) { c.SetStandalone(true) },
			restore: func(_ *testing.T, c *Cluster) { c.SetStandalone(false) },
		},
		"a field": {
			change:  func(_ *testing.T, c *Cluster) { c.config.Tune = more },
			restore: func(_ *testing.T, c *Cluster) { c.config.Tune = nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := testCluster(t)
			c.SetKubelet(program)
			if test.change != nil {
				test.change(t, c)
			}
			if err := errors.Join(c.writeKubeletConfig(), c.startKubelet()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { stopProgram(t, c) })
			if test.restore != nil {
				test.restore(t, c)
			}
			if got, err := c.runsFirstKubelet(); err != nil || got != test.want {
				t.Errorf("it is the first: %v, want %v; %v", got, test.want, err)
			}
		})
	}
}

func stopProgram(t *testing.T, c *Cluster) {
	t.Helper()
	if err := c.KillKubelet(context.Background()); err != nil {
		t.Error(err)
	}
}
