package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// importTimeout bounds the start of containerd on this machine.
const importTimeout = time.Minute

// importConfig is of a containerd that only imports images: it runs no containers.
const importConfig = `version = 3
root = %[1]q
state = %[2]q
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = %[3]q

[plugins.'io.containerd.internal.v1.opt']
path = %[4]q
`

// importImages runs containerd on this machine with the root directory of the image, imports every archive of layout
// and pins the images: the emulated machine would take minutes for it. Temporary files go to run.
func importImages(ctx context.Context, layout cluster.Layout, root, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	socket, config := filepath.Join(dir, "c.sock"), filepath.Join(dir, "config.toml")
	text := fmt.Sprintf(importConfig, root, filepath.Join(dir, "state"), socket, filepath.Join(dir, "opt"))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write containerd configuration: %w", err)
	}
	processes := host.Processes{LogDir: dir, RunDir: dir}
	if _, err := processes.Start(host.Command{
		Name: "containerd", Path: layout.Program("containerd"), Args: []string{"--config=" + config},
	}); err != nil {
		return err
	}
	err := importAll(ctx, layout, socket)
	if err != nil {
		log, _ := os.ReadFile(processes.LogFile("containerd"))
		err = fmt.Errorf("import images: %w\n%s", err, tail(string(log)))
	}
	return errors.Join(err, processes.Stop(context.WithoutCancel(ctx), "containerd", stopGrace))
}

func importAll(ctx context.Context, layout cluster.Layout, socket string) error {
	ctr := func(args ...string) (string, error) {
		args = append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)
		cmd := exec.CommandContext(ctx, layout.Program("ctr"), args...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("ctr %s: %w: %s%s", strings.Join(args[4:], " "), err, out, errs.String())
		}
		return string(out), nil
	}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, importTimeout, true, func(context.Context) (bool, error) {
		_, err := ctr("version")
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("containerd does not answer: %w", err)
	}
	archives, err := imageArchives(layout)
	if err != nil {
		return err
	}
	for _, archive := range archives {
		if _, err := ctr("images", "import", "--local", "--snapshotter=overlayfs", archive); err != nil {
			return err
		}
	}
	names, err := ctr("images", "list", "--quiet")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(names) {
		if _, err := ctr("images", "label", name, "io.cri-containerd.pinned=pinned"); err != nil {
			return err
		}
	}
	return nil
}
