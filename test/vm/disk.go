package vm

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

const (
	// nodeDiskSize is the size of the second disk, in bytes: two kubelets of about 100 MiB, and small files.
	nodeDiskSize = int64(640) << 20
	serviceDNS   = "10.46.0.10"
)

// Paths in the machine.
const (
	nodeManifests = "/etc/kubernetes/manifests"
	nodePairCert  = "/var/lib/kubelet/pki/kubelet.crt"
	nodePairKey   = "/var/lib/kubelet/pki/kubelet.key"
	nodeAuthority = "/etc/kubernetes/pki/ca.crt"
	// keptDropIn is our drop-in where systemd does not look for it.
	keptDropIn = "/usr/share/node/50-plimsoll.conf"
	ownDropIn  = "/etc/systemd/system/kubelet.service.d/50-plimsoll.conf"
	// ownSliceDropIn is for the slice of the unit: without it MemoryMin of the unit has no effect, and CPUWeight only
	// beside other services.
	ownSliceDropIn = "/etc/systemd/system/system.slice.d/50-plimsoll.conf"
)

// dropIn makes the kubelet's unit start ours (docs/operations.md). It is the watchdog's unit too: the agent reports
// that it lives every half of WatchdogSec.
const dropIn = `[Service]
Type=notify
WatchdogSec=%[1]d
TimeoutStartSec=%[2]d
KillMode=process
MemoryMin=256M
CPUWeight=1000
ExecStart=
ExecStart=/usr/local/bin/kubelet-plimsoll ` +
	"$KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS\n"

// monitorYields has the monitor thread of the Go runtime wait for other threads of the kubelet. It is the first thread
// that the runtime starts, and wakes up each 70 µs for a while after the kubelet was at rest: on an emulated processor
// that takes most of the time of the thread that it interrupts (package crossing).
const monitorYields = "ExecStartPost=/bin/sh -c " +
	"'chrt --batch --reset-on-fork --pid 0 $$(ls /proc/$MAINPID/task | sort -n | sed -n 2p)'\n"

// containerdConfig leaves containerd's own directories as they are.
const containerdConfig = `version = 3
disabled_plugins = ["io.containerd.nri.v1.nri"]

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %[1]q

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = "/etc/containerd/certs.d"

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "/etc/cni/net.d"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "/usr/local/bin/runc"
SystemdCgroup = %[2]t
`

// writeNodeDisk writes the second disk: both kubelets, and below root the files that the machine copies when it starts
// for the first time. The control plane must have its credentials.
func writeNodeDisk(config Config, factor time.Duration, keys map[string]file, disk string) error {
	files, err := nodeFiles(config, factor)
	if err != nil {
		return err
	}
	tree := disk + ".tree"
	defer os.RemoveAll(tree)
	for _, set := range []map[string]file{files, keys} {
		for name, file := range set {
			if err := file.write(filepath.Join(tree, "root", name)); err != nil {
				return err
			}
		}
	}
	if err := os.Chmod(filepath.Join(tree, "root/root/.ssh"), 0o700); err != nil {
		return fmt.Errorf("protect keys: %w", err)
	}
	if err := os.Chmod(filepath.Join(tree, "root/root"), 0o700); err != nil {
		return fmt.Errorf("protect keys: %w", err)
	}
	for _, name := range append([]string{kubeletOwn, kubeletStock}, config.Programs...) {
		if err := CopyFile(config.Layout.Program(name), filepath.Join(tree, name)); err != nil {
			return err
		}
	}
	return makeDisk(tree, disk, nodeDiskSize)
}

func nodeFiles(config Config, factor time.Duration) (map[string]file, error) {
	kubeletConfig, err := kubeletFile(config)
	if err != nil {
		return nil, err
	}
	text := func(format string, args ...any) file { return file{fmt.Appendf(nil, format, args...), 0o644} }
	registry := fmt.Sprintf("http://%s:%d", controlAddress, cluster.RegistryPort)
	mirror := "/etc/containerd/certs.d/" + cluster.MirroredRegistry + "/hosts.toml"
	kubeadmFlags := fmt.Sprintf("KUBELET_KUBEADM_ARGS=\"--node-ip=%s --v=2\"\n", nodeAddress)
	files := map[string]file{
		"/etc/hostname":          text("%s\n", cluster.NodeName),
		"/etc/hosts":             text("127.0.0.1 localhost\n%s %s\n", nodeAddress, cluster.NodeName),
		"/etc/resolv.conf":       text("# The machine has no name server.\n"),
		"/etc/node-network":      text("ADDRESS=%s%s\nGATEWAY=%s\n", nodeAddress, linkBits, controlAddress),
		nodeManifests + "/.keep": text(""),
		// With this directory the journal outlives a boot.
		"/var/log/journal/.keep":             text(""),
		"/etc/containerd/config.toml":        text(containerdConfig, build.ImagePause, config.Cgroups.systemd()),
		mirror:                               text("server = %[1]q\n\n[host.%[1]q]\n", registry),
		"/var/lib/kubelet/config.yaml":       {kubeletConfig, 0o644},
		"/var/lib/kubelet/kubeadm-flags.env": text("%s", kubeadmFlags),
	}
	maps.Copy(files, config.Cgroups.files())
	files[keptDropIn] = ownDropInFile(factor)
	if !config.Stock {
		files[ownDropIn] = files[keptDropIn]
		files[ownSliceDropIn] = text("[Slice]\nMemoryMin=256M\nCPUWeight=1000\n")
	}
	cert, key := config.Layout.KubeletPair()
	for source, target := range map[string]string{
		config.Layout.KubeletConfig(): "/etc/kubernetes/kubelet.conf", config.Layout.Authority(): nodeAuthority,
		cert: nodePairCert, key: nodePairKey,
	} {
		data, err := os.ReadFile(source)
		if err != nil {
			return nil, fmt.Errorf("read credentials of the node: %w", err)
		}
		files[target] = file{data, 0o600}
	}
	return files, nil
}

// ownDropInFile is our drop-in. Times of systemd are those of docs/operations.md, and longer under emulation.
func ownDropInFile(factor time.Duration) file {
	more := ""
	if factor == emulationFactor {
		more = monitorYields
	}
	factor = min(factor, 6)
	return file{append(fmt.Appendf(nil, dropIn, 30*factor, 90*factor), more...), 0o644}
}

func kubeletFile(config Config) ([]byte, error) {
	settings := kubeletConfig(config)
	if config.Tune != nil {
		config.Tune(settings)
	}
	settings.TypeMeta = metav1.TypeMeta{
		APIVersion: kubeletv1beta1.SchemeGroupVersion.String(), Kind: "KubeletConfiguration",
	}
	data, err := yaml.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("encode kubelet configuration: %w", err)
	}
	return data, nil
}

// kubeletConfig is like that of kubeadm. The machine keeps 512 MiB for itself, and the node is under pressure below
// 300 MiB.
func kubeletConfig(config Config) *kubeletv1beta1.KubeletConfiguration {
	settings := &kubeletv1beta1.KubeletConfiguration{
		TLSCertFile:              nodePairCert,
		TLSPrivateKeyFile:        nodePairKey,
		ClusterDomain:            "cluster.local",
		ClusterDNS:               []string{serviceDNS},
		StaticPodPath:            nodeManifests,
		ContainerRuntimeEndpoint: "unix:///run/containerd/containerd.sock",
		SystemReserved:           map[string]string{"memory": "512Mi"},
		EvictionHard: map[string]string{
			"memory.available": "300Mi", "nodefs.available": "2%", "nodefs.inodesFree": "1%",
			"imagefs.available": "2%", "imagefs.inodesFree": "1%",
		},
		EvictionPressureTransitionPeriod: metav1.Duration{Duration: 30 * time.Second},
		// Images cannot be pulled again, so none is ever removed for its age or the size of the disk.
		ImageGCHighThresholdPercent: new(int32(100)),
		ImageGCLowThresholdPercent:  new(int32(99)),
	}
	config.Cgroups.configure(settings)
	settings.Authentication.Anonymous.Enabled = new(false)
	settings.Authentication.X509.ClientCAFile = nodeAuthority
	settings.Authentication.Webhook.Enabled = new(true)
	settings.Authorization.Mode = kubeletv1beta1.KubeletAuthorizationModeWebhook
	return settings
}
