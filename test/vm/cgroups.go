package vm

import (
	"cmp"
	"fmt"
	"strings"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Cgroups is how the node's control groups are laid out.
type Cgroups string

// Layouts of control groups. The zero value is CgroupsSystemd.
const (
	// CgroupsSystemd has the driver of systemd, as kubeadm sets nodes up.
	CgroupsSystemd Cgroups = "systemd"
	// CgroupsFiles has the driver cgroupfs.
	CgroupsFiles Cgroups = "cgroupfs"
	// CgroupsNested has the driver of systemd, and a cgroupRoot below which those of the pods are, as kind sets nodes up.
	CgroupsNested Cgroups = "cgroup-root"
)

// nestedRoot is the cgroupRoot of CgroupsNested; with the driver of systemd its control group is kubelet.slice.
const nestedRoot = "/kubelet"

// ParseCgroups returns the layout called name; "" is CgroupsSystemd.
func ParseCgroups(name string) (Cgroups, error) {
	switch layout := Cgroups(name); layout {
	case "", CgroupsSystemd:
		return CgroupsSystemd, nil
	case CgroupsFiles, CgroupsNested:
		return layout, nil
	}
	return "", fmt.Errorf("no layout of control groups is called %q; there are %s, %s and %s", name, CgroupsSystemd,
		CgroupsFiles, CgroupsNested)
}

// name is that by which ParseCgroups finds the layout.
func (c Cgroups) name() string { return string(cmp.Or(c, CgroupsSystemd)) }

// systemd is whether systemd makes the control groups of pods and containers.
func (c Cgroups) systemd() bool { return c != CgroupsFiles }

func (c Cgroups) configure(settings *kubeletv1beta1.KubeletConfiguration) {
	settings.CgroupDriver = "cgroupfs"
	if c.systemd() {
		settings.CgroupDriver = "systemd"
	}
	settings.CgroupRoot = c.root()
}

// root is the kubelet's cgroupRoot, "" for the root of all control groups.
func (c Cgroups) root() string {
	if c == CgroupsNested {
		return nestedRoot
	}
	return ""
}

// files are the files that the layout needs. A kubelet does not create its cgroupRoot, and requires that it has all
// controllers, some of which systemd does not know.
func (c Cgroups) files() map[string]file {
	if c != CgroupsNested {
		return nil
	}
	return map[string]file{
		"/etc/systemd/system/kubelet.slice": {[]byte("[Unit]\nDescription=Control groups of pods\n\n[Slice]\n" +
			"CPUAccounting=yes\nMemoryAccounting=yes\nTasksAccounting=yes\n"), 0o644},
		"/etc/systemd/system/kubelet.service.d/20-cgroup-root.conf": {[]byte("[Unit]\nRequires=kubelet.slice\n" +
			"After=kubelet.slice\n\n[Service]\nExecStartPre=/bin/sh -euc 'cd /sys/fs/cgroup; " +
			"for c in $(cat cgroup.controllers); do echo +$$c >cgroup.subtree_control; done'\n"), 0o644},
	}
}

// pods is the control group of all pods.
func (c Cgroups) pods() string {
	switch c {
	case CgroupsFiles:
		return "/kubepods"
	case CgroupsNested:
		return "/kubelet.slice/kubelet-kubepods.slice"
	default:
		return "/kubepods.slice"
	}
}

// container is the control group of a container of a BestEffort pod.
func (c Cgroups) container(podUID, id string) string {
	if !c.systemd() {
		return c.pods() + "/besteffort/pod" + podUID + "/" + id
	}
	name := strings.TrimSuffix(c.pods()[strings.LastIndex(c.pods(), "/")+1:], ".slice") + "-besteffort"
	return fmt.Sprintf("%s/%s.slice/%s-pod%s.slice/cri-containerd-%s.scope", c.pods(), name, name,
		strings.ReplaceAll(podUID, "-", "_"), id)
}
