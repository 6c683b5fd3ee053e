package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// containerdConfig has all of containerd's files in the cluster's directory, network namespaces included, so that Clean
// finds them by their paths. Containers do not lower their oom_score_adj, since a machine that is itself a container
// may not be allowed to.
const containerdConfig = `version = 3
root = %[1]q
state = %[2]q
disabled_plugins = [
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
]

[grpc]
address = %[3]q

[plugins.'io.containerd.internal.v1.opt']
path = %[4]q

[plugins.'io.containerd.cri.v1.images']
snapshotter = %[5]q

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = %[6]q

[plugins.'io.containerd.cri.v1.images'.registry]
config_path = %[7]q

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", %[12]q]
netns_mounts_under_state_dir = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = [%[8]q]
conf_dir = %[9]q

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = %[10]q
Root = %[11]q
SystemdCgroup = %[13]t
`

func (l Layout) containerd() host.Command {
	return host.Command{
		Name: processContainerd,
		Path: l.Program("containerd"),
		Args: []string{"--config=" + l.config("containerd.toml")},
		// containerd searches its shim in the PATH.
		Env: []string{"PATH=" + l.Bin + ":" + os.Getenv("PATH")},
	}
}

func writeContainerdConfig(config Config, m machine) error {
	layout := config.Layout
	text := fmt.Sprintf(containerdConfig,
		layout.ContainerdRoot(), layout.run("containerd/state"), layout.Socket(), layout.run("containerd/opt"),
		m.snapshotter, build.ImagePause, layout.config("registries"), m.pluginDir, layout.config("cni"),
		layout.Program("runc"), layout.run("runc"), layout.CDI(), config.Guest.systemd())
	if err := os.WriteFile(layout.config("containerd.toml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write containerd configuration: %w", err)
	}
	if config.Mirror != "" {
		if err := writeMirror(config); err != nil {
			return err
		}
	}
	return writeNetworkConfig(layout)
}

// writeNetworkConfig connects every pod to one bridge.
func writeNetworkConfig(layout Layout) error {
	type object map[string]any
	data, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0",
		"name":       "plimsoll",
		"plugins": []object{{
			"type":        "bridge",
			"bridge":      bridge,
			"isGateway":   true,
			"ipMasq":      false,
			"hairpinMode": true,
			"ipam": object{
				"type":    "host-local",
				"dataDir": layout.run("cni"),
				"ranges":  [][]object{{{"subnet": podNetwork}}},
				"routes":  []object{{"dst": "0.0.0.0/0"}},
			},
		}, {
			"type":         "portmap",
			"capabilities": object{"portMappings": true},
		}},
	}, "", "  ")
	if err != nil {
		return fmt.Errorf("encode network configuration: %w", err)
	}
	file := filepath.Join(layout.config("cni"), "10-plimsoll.conflist")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("write network configuration: %w", err)
	}
	return nil
}

// importImages imports every archive of the layout and pins the images, since they could not be pulled again if the
// kubelet removed them.
func importImages(ctx context.Context, layout Layout) error {
	files, err := filepath.Glob(filepath.Join(layout.Images, "*.tar"))
	if err != nil {
		return fmt.Errorf("list images: %w", err)
	}
	slices.Sort(files)
	for _, file := range files {
		if _, err := ctr(ctx, layout, "images", "import", "--local", file); err != nil {
			return err
		}
	}
	names, err := ctr(ctx, layout, "images", "list", "--quiet")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(names) {
		if _, err := ctr(ctx, layout, "images", "label", name, "io.cri-containerd.pinned=pinned"); err != nil {
			return err
		}
	}
	return nil
}

// ctr runs containerd's own client in the namespace of Kubernetes.
func ctr(ctx context.Context, layout Layout, args ...string) (string, error) {
	args = append([]string{"--address", layout.Socket(), "--namespace", "k8s.io"}, args...)
	cmd := exec.CommandContext(ctx, layout.Program("ctr"), args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("ctr %s: %w: %s%s", strings.Join(args[4:], " "), err, out, errs.String())
	}
	return string(out), nil
}
