package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

// Clean removes everything that a cluster in layout left behind: processes, containers, cgroups, network namespaces and
// devices, mounts, kernel settings, firewall chains, files. Only logs stay. Each step is tried even if an earlier one
// failed; files are kept as long as anything is mounted among them. If nothing was left, it does nothing.
func Clean(ctx context.Context, layout Layout, log io.Writer) error {
	if log == nil {
		log = io.Discard
	}
	if !layout.exists() {
		return nil
	}
	fmt.Fprintln(log, "Stopping what runs and removing what it left.")
	if err := stopProcesses(ctx, layout); err != nil {
		return err
	}
	return removeTraces(ctx, layout)
}

// stopProcesses ends the kubelet first, so that no new containers come, and
// containerd last, so that it can take its containers down.
func stopProcesses(ctx context.Context, layout Layout) error {
	processes := layout.processes()
	var errs []error
	errs = append(errs, processes.Stop(ctx, processKubelet, stopGrace), stopControlPlane(ctx, layout),
		processes.Stop(ctx, processRegistry, stopGrace))
	if proc, err := processes.Find(processContainerd); err == nil && proc.Alive() {
		// removeTraces removes by force what is left.
		_ = removePods(ctx, layout)
	}
	errs = append(errs, processes.Stop(ctx, processContainerd, stopGrace))
	errs = append(errs, host.KillShims(ctx, layout.Socket()))
	return errors.Join(errs...)
}

func stopControlPlane(ctx context.Context, layout Layout) error {
	var errs []error
	for _, name := range []string{processController, processScheduler, processAPIServer, processEtcd} {
		errs = append(errs, layout.processes().Stop(ctx, name, stopGrace))
	}
	return errors.Join(errs...)
}

func removeTraces(ctx context.Context, layout Layout) error {
	footprint, err := host.LoadFootprint(layout.footprint())
	if errors.Is(err, fs.ErrNotExist) {
		// Nothing was started yet.
		return removeState(layout)
	}
	if err != nil {
		return err
	}
	return errors.Join(
		removeCgroup(ctx, footprint),
		host.UnmountUnder(layout.State),
		host.RemoveLink(bridge),
		host.RemoveLogLinks(layout.PodLogs()),
		footprint.Restore(),
		removeState(layout),
	)
}

// removeCgroup removes the cluster's cgroup, and kills what still runs in it. A cgroup that all kubelets share is kept
// while another kubelet runs.
func removeCgroup(ctx context.Context, footprint host.Footprint) error {
	if footprint.Cgroup == "" || footprint.Shared && len(host.Kubelets()) > 0 {
		return nil
	}
	// Systemd must know that its slices are gone. What this leaves is removed below, and reported if it cannot be.
	if unit := filepath.Base(footprint.Cgroup); strings.HasSuffix(unit, ".slice") {
		_ = exec.CommandContext(ctx, "systemctl", "stop", unit).Run()
	}
	return host.RemoveCgroup(ctx, footprint.Cgroup)
}

// removeState deletes the state folder. A file may appear while its writer
// ends, so that a second try can succeed.
func removeState(layout Layout) error {
	var err error
	for range 2 {
		if err = host.RemoveTree(layout.State); err == nil || !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}
