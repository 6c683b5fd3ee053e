package cluster

import (
	"io"
	"net"
	"path/filepath"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// NodeName is the name of the only node.
const NodeName = "plimsoll"

// Ports. All parts listen on loopback but the kubelet, which listens on the node's address, where the API server
// connects.
const (
	portAPIServer     = 7443
	portEtcd          = 7379
	portEtcdPeer      = 7380
	portScheduler     = 7259
	portController    = 7257
	portKubelet       = 7250
	portKubeletHealth = 7248
)

// RegistryPort is where a cluster with Config.Mirror serves images.
const RegistryPort = 7500

const (
	loopback = "127.0.0.1"
	// bridge is the network device to which the pods are connected.
	bridge       = "plimsoll0"
	podNetwork   = "10.45.0.0/20"
	serviceRange = "10.46.0.0/24"
	serviceFirst = "10.46.0.1"
	// serviceDNS is the name server in the pods' resolv.conf. No server listens there: a cluster of one node for tests
	// needs none.
	serviceDNS    = "10.46.0.10"
	clusterDomain = "cluster.local"
)

// MirroredRegistry is the registry of the images of upstream suites.
const MirroredRegistry = "registry.k8s.io"

const mebibyte = int64(1) << 20

// Config configures a cluster. Only Layout and Kubelet are required.
type Config struct {
	Layout Layout
	// Kubelet is the path of the kubelet to run: ours, or any other.
	Kubelet string
	// KubeletArgs come after the flags that every kubelet gets.
	KubeletArgs []string
	// KubeletEnv are variables of the kubelet's environment, as "NAME=value",
	// beside this program's own.
	KubeletEnv []string
	// Tune may change the kubelet's configuration before it is written.
	Tune func(*kubeletv1beta1.KubeletConfiguration)
	// Standalone omits the control plane: the kubelet runs static pods without an API server.
	Standalone bool
	// RuntimeOnly starts only containerd, for suites that start a control plane and the kubelet themselves.
	RuntimeOnly bool
	// Mirror is a directory of images, as OCI layouts, that the cluster's registry serves instead of MirroredRegistry; ""
	// for no registry.
	Mirror string
	// CgroupRoot is the cgroup in which the kubelet creates that of the pods; "" is that of Guest, or the root, where any
	// other kubelet has its own. With a cgroup of its own, such as "/plimsoll", a cluster can run where another kubelet
	// does. It has one level.
	CgroupRoot string
	// ImageDisk is the size, in bytes, of a file system for containerd; 0 for none, so that containerd uses that of the
	// repository.
	ImageDisk int64
	// NodeDisk is the same for the kubelet's root directory.
	NodeDisk int64
	// Network is where the control plane serves if the node is another machine (StartControlPlane); nil otherwise.
	Network *Network
	// Guest is set if this machine is a virtual one, whose control plane another machine runs; nil otherwise.
	Guest *Guest
	// Log receives progress, one line per step; nil discards it.
	Log io.Writer
}

// Tuned returns a function that applies changes to a kubelet's configuration one after the other. A change that is nil
// is left out.
func Tuned(changes ...func(*kubeletv1beta1.KubeletConfiguration)) func(*kubeletv1beta1.KubeletConfiguration) {
	return func(config *kubeletv1beta1.KubeletConfiguration) {
		for _, change := range changes {
			if change != nil {
				change(config)
			}
		}
	}
}

// podsCgroup is the cgroup of all pods. The name of a slice of systemd begins with that of the slice above.
func (c Config) podsCgroup() string {
	const pods = "kubepods"
	if !c.Guest.systemd() {
		return filepath.Join("/", c.CgroupRoot, pods)
	}
	if c.CgroupRoot == "" {
		return "/" + pods + ".slice"
	}
	return filepath.Join(c.rootCgroup(), filepath.Base(c.CgroupRoot)+"-"+pods+".slice")
}

// rootCgroup is the cgroup that the cgroup driver makes of CgroupRoot, "" if that is the root.
func (c Config) rootCgroup() string {
	if c.CgroupRoot != "" && c.Guest.systemd() {
		return c.CgroupRoot + ".slice"
	}
	return c.CgroupRoot
}

// driver is the cgroup driver of the kubelet and of containerd.
func (c Config) driver() string {
	if c.Guest.systemd() {
		return "systemd"
	}
	return "cgroupfs"
}

func (c Config) controlPlane() bool { return !c.Standalone && !c.RuntimeOnly }

// machine describes the machine on which a cluster runs.
type machine struct {
	// nodeIP is the address of the interface with the default route.
	nodeIP net.IP
	// memory in bytes.
	memory int64
	// snapshotter is the snapshotter of containerd.
	snapshotter string
	pluginDir   string
}
