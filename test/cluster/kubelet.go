package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// podMemory returns how much memory all pods together may use, in bytes. It is small, so that tests of memory pressure
// need little memory of a big machine.
func (m machine) podMemory() int64 { return min(2048*mebibyte, m.memory/2) }

// kubelet returns the command that runs the kubelet of the cluster.
func (c *Cluster) kubelet() host.Command {
	layout := c.config.Layout
	args := []string{
		"--config=" + layout.config("kubelet.yaml"),
		"--root-dir=" + layout.KubeletRoot(),
		"--hostname-override=" + NodeName,
		"--v=2",
	}
	if !c.config.Standalone {
		args = append(args, "--kubeconfig="+layout.kubeconfig(userKubelet), "--node-ip="+c.machine.nodeIP.String())
	}
	return host.Command{
		Name: processKubelet,
		Path: c.config.Kubelet,
		Args: append(args, c.config.KubeletArgs...),
		Env:  append([]string{"PATH=" + layout.Bin + ":" + os.Getenv("PATH")}, c.config.KubeletEnv...),
	}
}

// writeKubeletConfig writes the configuration file and the files that it refers to.
func (c *Cluster) writeKubeletConfig() error {
	if err := WriteConfig(c.config.Layout.config("kubelet.yaml"), c.tunedKubeletConfig()); err != nil {
		return err
	}
	return writeResolvConf(c.config.Layout.config("resolv.conf"))
}

func (c *Cluster) tunedKubeletConfig() *kubeletv1beta1.KubeletConfiguration {
	config := c.kubeletConfig()
	if c.config.Tune != nil {
		c.config.Tune(config)
	}
	return config
}

// startKubelet starts the process with the configuration file that is there, and records what it was started with.
func (c *Cluster) startKubelet() error {
	written, err := os.ReadFile(c.config.Layout.config("kubelet.yaml"))
	if err != nil {
		return fmt.Errorf("read kubelet configuration: %w", err)
	}
	if _, err := c.startProcess(c.kubelet()); err != nil {
		return err
	}
	c.started = c.kubeletInputs(written)
	return nil
}

// kubeletInputs returns all that distinguishes a kubelet which is started now with that configuration file from
// another one: program, flags, environment and the file.
func (c *Cluster) kubeletInputs(file []byte) string {
	command := c.kubelet()
	return fmt.Sprintf("%q", []any{command.Path, command.Args, os.Environ(), command.Env, file})
}

// EnsureKubelet replaces the kubelet by one that StartKubelet(ctx, nil) starts, unless the last one was started with
// the same program, flags, environment and configuration file and still runs. It waits until the node is Ready if it
// has started a kubelet.
func (c *Cluster) EnsureKubelet(ctx context.Context) error {
	if runs, err := c.runsFirstKubelet(); err != nil || runs {
		return err
	}
	if err := c.StopKubelet(ctx); err != nil {
		return err
	}
	return c.StartKubelet(ctx, nil)
}

// runsFirstKubelet returns whether a kubelet runs, and was started as StartKubelet(ctx, nil) would start it now.
func (c *Cluster) runsFirstKubelet() (bool, error) {
	file, err := encodeConfig(c.tunedKubeletConfig())
	if err != nil {
		return false, err
	}
	alive, err := c.KubeletAlive()
	return alive && c.started == c.kubeletInputs(file), err
}

// encodeConfig returns the content of a kubelet's configuration file.
func encodeConfig(config *kubeletv1beta1.KubeletConfiguration) ([]byte, error) {
	config.TypeMeta = metav1.TypeMeta{APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: "KubeletConfiguration"}
	data, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encode kubelet configuration: %w", err)
	}
	return data, nil
}

// WriteConfig writes a kubelet's configuration file.
func WriteConfig(file string, config *kubeletv1beta1.KubeletConfiguration) error {
	data, err := encodeConfig(config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("write kubelet configuration: %w", err)
	}
	return nil
}

func (c *Cluster) kubeletConfig() *kubeletv1beta1.KubeletConfiguration {
	layout := c.config.Layout
	config := &kubeletv1beta1.KubeletConfiguration{
		Address:                  c.machine.nodeIP.String(),
		Port:                     portKubelet,
		HealthzBindAddress:       loopback,
		HealthzPort:              new(int32(portKubeletHealth)),
		TLSCertFile:              layout.pki("kubelet.crt"),
		TLSPrivateKeyFile:        layout.pki("kubelet.key"),
		ClusterDomain:            clusterDomain,
		ClusterDNS:               []string{serviceDNS},
		ResolverConfig:           new(layout.config("resolv.conf")),
		StaticPodPath:            layout.Manifests(),
		PodLogsDir:               layout.PodLogs(),
		VolumePluginDir:          layout.run("volume-plugins"),
		ContainerRuntimeEndpoint: "unix://" + layout.Socket(),
		CgroupDriver:             c.config.driver(),
		CgroupRoot:               filepath.Join("/", c.config.CgroupRoot),
		FailCgroupV1:             new(false),
		FailSwapOn:               new(false),
		SerializeImagePulls:      new(false),
		MaxPods:                  250,
		FileCheckFrequency:       metav1.Duration{Duration: 2 * time.Second},
		// Images cannot be pulled again, so none is ever removed for its age or the size of the disk.
		ImageGCHighThresholdPercent: new(int32(100)),
		ImageGCLowThresholdPercent:  new(int32(99)),
	}
	c.setAuth(config)
	c.setPressure(config)
	return config
}

// setAuth delegates authentication and authorization to the API server. A standalone kubelet accepts all client
// certificates of the cluster.
func (c *Cluster) setAuth(config *kubeletv1beta1.KubeletConfiguration) {
	config.Authentication.Anonymous.Enabled = new(false)
	config.Authentication.X509.ClientCAFile = c.config.Layout.pki("ca.crt")
	config.Authentication.Webhook.Enabled = new(!c.config.Standalone)
	config.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeWebhook
	if c.config.Standalone {
		config.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeAlwaysAllow
	}
}

// setPressure reserves all memory but podMemory for the rest of the machine, and sets the eviction threshold to a
// quarter of podMemory.
func (c *Cluster) setPressure(config *kubeletv1beta1.KubeletConfiguration) {
	pods := c.machine.podMemory()
	config.EnforceNodeAllocatable = []string{"pods"}
	config.SystemReserved = map[string]string{"memory": fmt.Sprintf("%dKi", (c.machine.memory-pods)>>10)}
	config.EvictionHard = map[string]string{
		"memory.available":   fmt.Sprintf("%dMi", pods/4/mebibyte),
		"nodefs.available":   "2%",
		"nodefs.inodesFree":  "1%",
		"imagefs.available":  "2%",
		"imagefs.inodesFree": "1%",
	}
	config.EvictionPressureTransitionPeriod = metav1.Duration{Duration: 30 * time.Second}
}

// writeResolvConf copies the machine's resolver configuration without servers on loopback, which pods cannot reach.
func writeResolvConf(file string) error {
	data, _ := os.ReadFile("/etc/resolv.conf")
	var kept []string
	for line := range strings.Lines(string(data)) {
		if !strings.Contains(line, "nameserver 127.") && !strings.Contains(line, "nameserver ::1") {
			kept = append(kept, strings.TrimRight(line, "\n"))
		}
	}
	if err := os.WriteFile(file, []byte(strings.Join(kept, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(file), err)
	}
	return nil
}
