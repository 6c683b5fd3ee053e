package cluster

import (
	"io"
	"net"
	"path/filepath"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// NodeName is what the only node is called.
const NodeName = "plimsoll"

// Where the parts listen. All but the kubelet listen on loopback; the kubelet
// listens on the node's address, where the API server looks for it.
const (
	portAPIServer     = 7443
	portEtcd          = 7379
	portEtcdPeer      = 7380
	portScheduler     = 7259
	portController    = 7257
	portKubelet       = 7250
	portRegistry      = 7500
	portKubeletHealth = 7248
)

const (
	loopback = "127.0.0.1"
	// bridge is the network device that the pods hang on.
	bridge       = "plimsoll0"
	podNetwork   = "10.45.0.0/20"
	serviceRange = "10.46.0.0/24"
	serviceFirst = "10.46.0.1"
	// serviceDNS is where pods look names up. Nobody answers there: a cluster
	// of one node for tests has no need for it.
	serviceDNS    = "10.46.0.10"
	clusterDomain = "cluster.local"
)

// MirroredRegistry is where the images of upstream suites come from.
const MirroredRegistry = "registry.k8s.io"

const mebibyte = int64(1) << 20

// Config says what cluster to start. Only Layout and Kubelet are required.
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
	// Standalone leaves the control plane out: the kubelet runs static pods
	// and knows no API server.
	Standalone bool
	// RuntimeOnly starts containerd and nothing else, for suites that bring
	// their own control plane and start the kubelet themselves.
	RuntimeOnly bool
	// Mirror is a folder of images, as OCI layouts, that a registry on loopback
	// serves in the place of MirroredRegistry; "" for no registry.
	Mirror string
	// CgroupRoot is the control group in which the kubelet makes that of the
	// pods; "" is the machine's root, where any other kubelet has its own. A
	// group of its own, such as "/plimsoll", lets a cluster run beside one.
	CgroupRoot string
	// ImageDisk is the size, in bytes, of a file system of its own for
	// containerd; 0 leaves it on that of the repository.
	ImageDisk int64
	// NodeDisk is the same for the kubelet's root directory.
	NodeDisk int64
	// Log receives progress, one line per step; nil drops it.
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

// podsCgroup is the control group of all pods.
func (c Config) podsCgroup() string { return filepath.Join("/", c.CgroupRoot, "kubepods") }

func (c Config) controlPlane() bool { return !c.Standalone && !c.RuntimeOnly }

// machine is what a cluster needs to know about where it runs.
type machine struct {
	// nodeIP is the address of the interface with the default route.
	nodeIP net.IP
	// memory in bytes.
	memory int64
	// snapshotter is how containerd stores images.
	snapshotter string
	pluginDir   string
}
