package containerspec_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/volume"
	"pgregory.net/rapid"
)

// richWorld has all kinds of objects that a container can refer to. Variables of services do not collide: stock uses
// one of the colliding values at random.
func richWorld(t testing.TB) *world {
	w := newWorld(t)
	named := clusterService(namespace, "shop", "10.0.0.3", 80)
	named.Spec.Ports = append(named.Spec.Ports, v1.ServicePort{Name: "metrics", Port: 9090, Protocol: v1.ProtocolUDP})
	named.Spec.Ports[0].Name = "http"
	w.services = []*v1.Service{
		clusterService("default", "kubernetes", "10.0.0.1", 443),
		clusterService("default", "elsewhere", "10.0.0.2", 1),
		clusterService(namespace, "headless", v1.ClusterIPNone, 1),
		clusterService(namespace, "external", "", 1),
		named,
	}
	w.configMaps[namespace+"/settings"] = &v1.ConfigMap{
		Data: map[string]string{"COLOR": "red", "strange key!": "x", "REF": "$(COLOR)"},
	}
	w.secrets[namespace+"/login"] = &v1.Secret{
		Data: map[string][]byte{"PASSWORD": []byte("hunter2"), "COLOR": []byte("secret-red")},
	}
	w.allocated = kubecontainer.RunContainerOptions{
		Envs:        []kubecontainer.EnvVar{{Name: "DEVICE", Value: "gpu0"}, {Name: "COLOR", Value: "device-color"}},
		Mounts:      []kubecontainer.Mount{{ContainerPath: "/dev/x", HostPath: "/dev/x"}},
		Devices:     []kubecontainer.DeviceInfo{{PathOnHost: "/dev/gpu0", PathInContainer: "/dev/gpu0", Permissions: "rw"}},
		CDIDevices:  []kubecontainer.CDIDevice{{Name: "vendor.com/gpu=0"}},
		Annotations: []kubecontainer.Annotation{{Name: "gpu", Value: "0"}},
	}
	w.volumes = kubecontainer.VolumeMap{
		"data": {
			Mounter: mounter{
				path: w.volumeDir(t, "data"), attributes: volume.Attributes{Managed: true, SELinuxRelabel: true},
			},
			InnerVolumeSpecName: "pvc-data",
		},
		"labeled": {
			Mounter: mounter{
				path: w.volumeDir(t, "labeled"), attributes: volume.Attributes{Managed: true, SELinuxRelabel: true},
			}, SELinuxLabeled: true,
		},
		"projected": {
			Mounter: mounter{
				path:       w.volumeDir(t, "projected"),
				attributes: volume.Attributes{ReadOnly: true, Managed: true, SELinuxRelabel: true},
			},
		},
		"host":      {Mounter: mounter{path: w.volumeDir(t, "host")}},
		"artifact":  {Mounter: mounter{attributes: volume.Attributes{ReadOnly: true, Managed: true, SELinuxRelabel: true}}},
		"pathless":  {Mounter: mounter{}},
		"unmounted": {},
		"disk":      {BlockVolumeMapper: blockMapper{dir: w.root, name: "disk-link"}},
		"cd":        {BlockVolumeMapper: blockMapper{dir: w.root, name: "disk-link"}, ReadOnly: true},
		"unmapped":  {BlockVolumeMapper: blockMapper{dir: w.root, name: "no-link"}},
	}
	if err := os.Symlink("/dev/null", filepath.Join(w.root, "disk-link")); err != nil {
		t.Fatal(err)
	}
	env := "GOOD='from a file'\nEMPTY=''\n"
	if err := os.WriteFile(filepath.Join(w.root, "volumes/data/env"), []byte(env), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(w.root, "volumes/data/broken"), []byte("NOT AN ENV FILE"), 0o644); err != nil {
		t.Fatal(err)
	}
	return w
}

// volumeDir creates a directory for a volume with a sub-path "there", and removes what earlier runs created in it.
func (w *world) volumeDir(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(w.root, "volumes", name)
	if err := os.MkdirAll(filepath.Join(dir, "there"), 0o750); err != nil {
		t.Fatal(err)
	}
	return dir
}

func pick[T any](t *rapid.T, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(t, label)
}

func maybe[T any](t *rapid.T, label string, value T) *T {
	if rapid.Bool().Draw(t, label) {
		return &value
	}
	return nil
}

// rarely is true in one case of eight, for what makes a container fail.
func rarely(t *rapid.T, label string) bool { return rapid.IntRange(0, 7).Draw(t, label) == 0 }

func drawPod(t *rapid.T) *v1.Pod {
	pod := basicPod()
	pod.Namespace = pick(t, "namespace", namespace, namespace, "default")
	pod.Name = pick(t, "name", "web-0", "a.name.with.dots",
		"a-very-long-name-that-does-not-fit-into-a-host-name-of-the-kernel-1",
		"cut-here-123456789-123456789-123456789-123456789-123456789-12.-x")
	pod.Annotations["kubernetes.io/config.source"] = pick(t, "source", "api", "api", "file")
	spec := &pod.Spec
	spec.Hostname = pick(t, "hostname", "", "", "chosen", "Not_A_Label")
	spec.Subdomain = pick(t, "subdomain", "", "sub", "sub", "no label")
	spec.HostnameOverride = maybe(t, "override", pick(t, "overrideName", "any.fqdn.example", "UPPER"))
	spec.HostNetwork = rapid.Bool().Draw(t, "hostNetwork")
	spec.RuntimeClassName = maybe(t, "runtimeClass", pick(t, "class", "legacy", "lost", "missing"))
	links := rapid.Bool().Draw(t, "links")
	spec.EnableServiceLinks = &links
	if rarely(t, "nilLinks") {
		spec.EnableServiceLinks = nil
	}
	if rapid.Bool().Draw(t, "aliases") {
		spec.HostAliases = []v1.HostAlias{
			{IP: "1.2.3.4", Hostnames: []string{"one", "two"}}, {IP: "::2", Hostnames: []string{"three"}},
		}
	}
	if rapid.Bool().Draw(t, "podLevel") {
		spec.Resources = &v1.ResourceRequirements{Limits: drawResources(t, "podLimits")}
	}
	spec.Containers[0] = drawContainer(t)
	spec.Containers = append(spec.Containers,
		v1.Container{Name: "other", Resources: v1.ResourceRequirements{Requests: drawResources(t, "otherRequests")}})
	return pod
}

func drawResources(t *rapid.T, label string) v1.ResourceList {
	list := v1.ResourceList{}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage} {
		if rapid.Bool().Draw(t, label+string(name)) {
			list[name] = *resource.NewQuantity(rapid.Int64Range(0, 5).Draw(t, label), resource.DecimalSI)
		}
	}
	return list
}

func drawContainer(t *rapid.T) v1.Container {
	c := v1.Container{
		Name:                   "main",
		TerminationMessagePath: pick(t, "terminationPath", "", "/dev/termination-log"),
		Resources: v1.ResourceRequirements{
			Limits: drawResources(t, "limits"), Requests: drawResources(t, "requests"),
		},
	}
	c.EnvFrom = rapid.SliceOfN(rapid.Custom(drawEnvFrom), 0, 3).Draw(t, "envFrom")
	c.Env = rapid.SliceOfN(rapid.Custom(drawEnv), 0, 8).Draw(t, "env")
	c.VolumeMounts = rapid.SliceOfN(rapid.Custom(drawMount), 0, 4).Draw(t, "mounts")
	c.VolumeDevices = rapid.SliceOfN(rapid.Custom(drawDevice), 0, 2).Draw(t, "devices")
	return c
}

func drawEnvFrom(t *rapid.T) v1.EnvFromSource {
	source := v1.EnvFromSource{Prefix: pick(t, "prefix", "", "P_")}
	optional := maybe(t, "optional", true)
	if rapid.Bool().Draw(t, "isSecret") {
		source.SecretRef = &v1.SecretEnvSource{Optional: optional}
		source.SecretRef.Name = drawObject(t, "login")
		return source
	}
	source.ConfigMapRef = &v1.ConfigMapEnvSource{Optional: optional}
	source.ConfigMapRef.Name = drawObject(t, "settings")
	return source
}

func drawObject(t *rapid.T, good string) string {
	return pick(t, "object", good, good, good, good, "missing", "forbidden")
}

func drawEnv(t *rapid.T) v1.EnvVar {
	env := v1.EnvVar{
		Name: pick(t, "envName", "A", "B", "COLOR", "SHOP_SERVICE_HOST", "KUBERNETES_SERVICE_HOST", "strange name"),
	}
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0, 1:
		env.Value = pick(t, "value", "", "plain", "$(A)-$(B)", "$$(A)", "$(COLOR)", "$(SHOP_SERVICE_PORT)", "$(NOBODY)",
			"$(DEVICE)", "$(A")
		return env
	case 2:
		env.ValueFrom = &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: pick(t, "field",
			"metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels['app']", "metadata.annotations['team']",
			"spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
			"spec.bogus")}}
	case 3:
		ref := &v1.ResourceFieldSelector{
			ContainerName: pick(t, "ofContainer", "", "main", "other", "other", "nobody"),
			Resource: pick(t, "resource", "limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu",
				"requests.memory", "requests.ephemeral-storage", "limits.bogus"),
		}
		if rapid.Bool().Draw(t, "divisor") {
			ref.Divisor = resource.MustParse("1Mi")
		}
		env.ValueFrom = &v1.EnvVarSource{ResourceFieldRef: ref}
	case 4:
		ref := &v1.ConfigMapKeySelector{Key: pick(t, "key", "COLOR", "REF", "none"), Optional: maybe(t, "optional", true)}
		ref.Name = drawObject(t, "settings")
		env.ValueFrom = &v1.EnvVarSource{ConfigMapKeyRef: ref}
	case 5:
		ref := &v1.SecretKeySelector{Key: pick(t, "key", "PASSWORD", "none"), Optional: maybe(t, "optional", true)}
		ref.Name = drawObject(t, "login")
		env.ValueFrom = &v1.EnvVarSource{SecretKeyRef: ref}
	case 6:
		env.ValueFrom = &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{
			VolumeName: pick(t, "volume", "data", "data", "data", "pathless", "unmounted", "nowhere"),
			Path:       pick(t, "path", "env", "env", "../../../env", "broken", "none"),
			Key:        pick(t, "key", "GOOD", "EMPTY", "none"), Optional: maybe(t, "optional", true),
		}}
	}
	return env
}

func drawMount(t *rapid.T) v1.VolumeMount {
	mount := v1.VolumeMount{
		Name: pick(t, "volume", "data", "data", "labeled", "projected", "host", "artifact", "pathless", "unmounted",
			"nowhere"),
		MountPath: pick(t, "path", "/mnt/a", "/mnt/b", "relative/c", "/etc/hosts", "/not//clean/../path/"),
		ReadOnly:  rapid.Bool().Draw(t, "readOnly"),
	}
	switch rapid.IntRange(0, 3).Draw(t, "sub") {
	case 0:
		mount.SubPath = pick(t, "subPath", "there", "new/dir", "../out", "/absolute", "cannot-make", "cannot-bind",
			"there/../there")
	case 1:
		mount.SubPathExpr = pick(t, "subPathExpr", "$(A)", "x-$(COLOR)", "$(DEVICE)/$(NOBODY)", "$(A)$(NOBODY)", "plain")
	}
	mount.MountPropagation = maybe(t, "propagates",
		pick(t, "propagation", v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional,
			"Sideways"))
	mount.RecursiveReadOnly = maybe(t, "recursive",
		pick(t, "rro", v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled, "Perhaps"))
	return mount
}

func drawDevice(t *rapid.T) v1.VolumeDevice {
	return v1.VolumeDevice{
		Name:       pick(t, "device", "disk", "disk", "cd", "unmapped", "data", "nowhere"),
		DevicePath: pick(t, "devicePath", "/dev/xvda", "/dev/xvda", "/dev/xvda", "dev/xvda"),
	}
}

// drawPodIPs returns addresses as a runtime may report them: none, one or both families, in any order and form.
func drawPodIPs(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.SampledFrom([]string{"10.1.0.7", "10.001.0.8", "fd00::7", "FD00:0::8", "nonsense"}), 0,
		4).Draw(t, "podIPs")
}

func drawNodeIPs(t *rapid.T) []net.IP {
	return pick(t, "nodeIPs", nil, []net.IP{net.ParseIP("192.168.7.1")},
		[]net.IP{net.ParseIP("fd07::1"), net.ParseIP("192.168.7.1")})
}

func drawImages(t *rapid.T) kubecontainer.ImageVolumes {
	return pick(t, "images", nil, kubecontainer.ImageVolumes{},
		kubecontainer.ImageVolumes{"artifact": &runtimeapi.ImageSpec{Image: fmt.Sprintf("sha256:%064d", 1)}})
}
