package containerspec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
)

const (
	// etcHosts is the hosts file, on the node and in containers.
	etcHosts = "/etc/hosts"
	// hostsMountName is the name of the mount of the managed hosts file; it belongs to no volume.
	hostsMountName = "k8s-managed-etc-hosts"

	hostsFileMode os.FileMode = 0o644
)

// The first line says that the file is managed and may be overwritten. Upstream's tests check for it.
const (
	hostsHeader            = "# Kubernetes-managed hosts file.\n"
	hostsHeaderHostNetwork = "# Kubernetes-managed hosts file (host network).\n"
)

// loopbackHosts precedes the pod's own entries in every managed file.
const loopbackHosts = `127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

// HostsFile describes the /etc/hosts that all containers of a pod share.
type HostsFile struct {
	// IPs are the pod's addresses; each gets an entry with the host name.
	IPs []string
	// Hostname is the short name, Domain may be empty.
	Hostname, Domain string
	// Aliases are the pod's hostAliases.
	Aliases []v1.HostAlias
	// HostNetwork starts the file with the content of the node's own file, instead of entries for IPs.
	HostNetwork bool
}

// WriteTo writes this content to the file at path, with mode 0644. It writes in place, because the file is bind-mounted
// into running containers, and writes nothing if the content is the same, so that they never read an empty file while
// another container of the pod starts. It overwrites what a container has written to the file.
func (f HostsFile) WriteTo(path string) error {
	content, err := f.content(etcHosts)
	if err != nil {
		return err
	}
	same, err := hasContent(path, content)
	if err != nil {
		return err
	}
	if !same {
		if err := os.WriteFile(path, content, hostsFileMode); err != nil {
			return fmt.Errorf("writing the pod's hosts file: %w", err)
		}
	}
	// The umask reduces the mode that WriteFile sets, and WriteFile does not change the mode of an existing file.
	return os.Chmod(path, hostsFileMode)
}

// content renders the file; nodeHosts is the path of the node's own hosts file.
func (f HostsFile) content(nodeHosts string) ([]byte, error) {
	var b bytes.Buffer
	if f.HostNetwork {
		own, err := os.ReadFile(nodeHosts)
		if err != nil {
			return nil, err
		}
		b.WriteString(hostsHeaderHostNetwork)
		b.Write(own)
	} else {
		b.WriteString(hostsHeader)
		b.WriteString(loopbackHosts)
		names := f.Hostname
		if f.Domain != "" {
			names = f.Hostname + "." + f.Domain + "\t" + f.Hostname
		}
		for _, ip := range f.IPs {
			b.WriteString(ip + "\t" + names + "\n")
		}
	}
	if len(f.Aliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
	}
	for _, alias := range f.Aliases {
		b.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	return b.Bytes(), nil
}

// hasContent returns whether the file exists with exactly this content. It reads no more than that, because containers
// can write any amount to the file.
func hasContent(path string, content []byte) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	got, err := io.ReadAll(io.LimitReader(file, int64(len(content))+1))
	if err != nil {
		return false, fmt.Errorf("reading the pod's hosts file: %w", err)
	}
	return bytes.Equal(got, content), nil
}

// hostsMount writes the pod's hosts file and returns its mount.
func (h *Helper) hostsMount(req request) (kubecontainer.Mount, error) {
	path := h.cfg.Layout.EtcHosts(req.pod.UID)
	file := HostsFile{
		IPs:         req.podIPs,
		Hostname:    req.hostname,
		Domain:      req.domain,
		Aliases:     req.pod.Spec.HostAliases,
		HostNetwork: req.pod.Spec.HostNetwork,
	}
	if err := file.WriteTo(path); err != nil {
		return kubecontainer.Mount{}, err
	}
	return kubecontainer.Mount{Name: hostsMountName, ContainerPath: etcHosts, HostPath: path, SELinuxRelabel: true}, nil
}

// needsHostsMount returns whether the container gets the managed hosts file. It does not if it mounts one itself, nor
// if the pod has no addresses yet.
func needsHostsMount(req request) bool {
	for _, mount := range req.container.VolumeMounts {
		if mount.MountPath == etcHosts {
			return false
		}
	}
	return len(req.podIPs) > 0 || req.pod.Spec.HostNetwork
}
