package build

import (
	"path"
	"time"
)

// KubernetesVersion is the release from which everything here is built, and with which the kubelet is compared.
const KubernetesVersion = "v1.36.3"

// OwnVersion is the version that our kubelet reports: the release that it replaces, and our own count as build
// metadata.
const OwnVersion = KubernetesVersion + "+plimsoll.0"

// Part is one program that is built from a Go module of this repository.
type Part struct {
	// Name is the file name of the binary.
	Name string
	// Module is the folder of its module, relative to the repository.
	Module  string
	Package string
	Tags    string
	// LDFlags are added to those that every part has.
	LDFlags string
	// Cgo asks for a C compiler; all else is built without.
	Cgo bool
	// Test builds the test binary of Package instead of a program.
	Test bool
	// Own parts belong to the program under development: the Go tool decides each time whether anything must be built.
	Own bool
	// Cold is an estimate of how long a build takes on two cores with empty caches.
	Cold time.Duration
}

const (
	kubernetesModule = "hack/parts/kubernetes"
	containerdModule = "hack/parts/containerd"
	containerdSource = "github.com/containerd/containerd/v2/cmd/"
)

// versionFlags sets the version of a Kubernetes program. Without them it reports a development version, which other
// parts reject.
func versionFlags(version string) string {
	flags := ""
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags += " -X " + pkg + ".gitVersion=" + version +
			" -X " + pkg + ".gitMajor=1 -X " + pkg + ".gitMinor=36"
	}
	return flags
}

func kubernetesPart(name string, cold time.Duration) Part {
	return Part{
		Name: name, Module: kubernetesModule, Package: "k8s.io/kubernetes/cmd/" + name,
		LDFlags: versionFlags(KubernetesVersion), Cold: cold,
	}
}

// Kubelet is the program of this repository.
func Kubelet() Part {
	return Part{
		Name: "kubelet", Module: ".", Package: "./cmd/kubelet",
		LDFlags: versionFlags(OwnVersion), Own: true, Cold: 190 * time.Second,
	}
}

// StockKubelet is the stock kubelet of the same release, for comparisons.
func StockKubelet() Part {
	part := kubernetesPart("kubelet", 60*time.Second)
	part.Name = "kubelet-stock"
	return part
}

// ClusterParts returns what a node and its control plane need in addition to a kubelet.
func ClusterParts() []Part {
	return []Part{
		{Name: "etcd", Module: "hack/parts/etcd", Package: ".", Cold: 55 * time.Second},
		kubernetesPart("kube-apiserver", 100*time.Second),
		kubernetesPart("kube-controller-manager", 27*time.Second),
		kubernetesPart("kube-scheduler", 5*time.Second),
		kubernetesPart("kubectl", 23*time.Second),
		{Name: "containerd", Module: containerdModule, Package: containerdSource + "containerd", Cold: 45 * time.Second},
		{
			Name: "containerd-shim-runc-v2", Module: containerdModule, Package: containerdSource + "containerd-shim-runc-v2",
			Cold: 5 * time.Second,
		},
		{Name: "ctr", Module: containerdModule, Package: containerdSource + "ctr", Cold: 5 * time.Second},
		{
			Name: "runc", Module: "hack/parts/runc", Package: "github.com/opencontainers/runc", Tags: "seccomp", Cgo: true,
			Cold: 15 * time.Second,
		},
		{Name: "pause", Module: ".", Package: "./test/images/pause", Own: true, Cold: time.Second},
		Hog(),
	}
}

// Hog is the program that uses memory.
func Hog() Part {
	return Part{Name: "hog", Module: ".", Package: "./test/images/hog", Own: true, Cold: time.Second}
}

// KatalystPlugin is an eviction plugin or a reporter plugin from Katalyst's unmodified code, for tests.
func KatalystPlugin() Part {
	return Part{Name: "katalyst", Module: "test/katalyst", Package: ".", Own: true, Cold: 210 * time.Second}
}

// OwnNodeTests are our tests on the real node (test/e2e_node), for a machine without the Go tool.
func OwnNodeTests() Part {
	return Part{
		Name: "node.test", Module: ".", Package: "./test/e2e_node", Tags: "e2e", Test: true, Own: true,
		Cold: 20 * time.Second,
	}
}

// Race is the program of "make race", for a machine without the Go tool.
func Race() Part {
	return Part{Name: "race", Module: ".", Package: "./test/cmd/race", Own: true, Cold: 20 * time.Second}
}

// KernelTests are unit tests of ours that use control groups of the machine, for a machine without the Go tool.
func KernelTests() []Part {
	var parts []Part
	for _, pkg := range []string{"cgroupkill", "eviction/fence", "eviction/notify"} {
		parts = append(parts, Part{
			Name: path.Base(pkg) + ".test", Module: ".", Package: "./pkg/kubelet/" + pkg, Test: true, Own: true,
			Cold: 5 * time.Second,
		})
	}
	return parts
}

// NodeSuite is upstream's suite for nodes.
func NodeSuite() Part { return suite("e2e_node", 2*time.Minute) }

// ClusterSuite is upstream's suite for clusters.
func ClusterSuite() Part { return suite("e2e", 4*time.Minute) }

func suite(name string, cold time.Duration) Part {
	return Part{
		Name: name + ".test", Module: kubernetesModule, Package: "k8s.io/kubernetes/test/" + name, Test: true, Cold: cold,
	}
}

// ConformanceParts returns what both suites need in addition to ClusterParts.
func ConformanceParts() []Part {
	own := func(name, pkg string) Part {
		return Part{Name: name, Module: ".", Package: pkg, Own: true, Cold: time.Second}
	}
	return []Part{
		{Name: "ginkgo", Module: kubernetesModule, Package: "github.com/onsi/ginkgo/v2/ginkgo", Cold: 5 * time.Second},
		{Name: "agnhost", Module: kubernetesModule, Package: "k8s.io/kubernetes/test/images/agnhost", Cold: 20 * time.Second},
		{
			Name: "crane", Module: "hack/parts/registry", Package: "github.com/google/go-containerregistry/cmd/crane",
			Cold: 4 * time.Second,
		},
		own("nonewprivs", "./test/images/nonewprivs"),
		own("nmeter", "./test/images/nmeter"),
		own("fakesystemd", "./test/cmd/fakesystemd"),
	}
}
