package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
	"github.com/plimsoll-project/plimsoll/test/vm"
)

// machineProcs bounds how many specs run at the same time in the machine, which has two processors.
const machineProcs = 2

// Machine is a virtual machine with systemd and cgroup v2, in which the node suite starts its control plane and its
// kubelet.
type Machine struct {
	image vm.Image
	// round counts the runs of the same specs from 1.
	round int
}

// InMachine returns the node suite in a virtual machine, which may be emulated. The time-outs of the specs are those of
// a fast machine, so that it takes several rounds to know which specs pass with a kubelet there. Each round has its own
// results.
func (s Suite) InMachine(round int) (Suite, error) {
	if s.Cluster {
		return s, fmt.Errorf("suite %s is for clusters, in the machine run those for nodes", s.Name)
	}
	s.Machine = &Machine{round: round}
	s.Party = fmt.Sprintf("machine-%s-%d", s.Party, round)
	return s, nil
}

// prepare builds the image of the machine, if there is one.
func (m *Machine) prepare(ctx context.Context, s Suite) (err error) {
	if m != nil {
		m.image, err = vm.Build(ctx, vm.NewLayout(s.Root), s.Log)
	}
	return err
}

// procs is how many specs run at the same time.
func (s Suite) procs() int {
	if s.Machine != nil {
		return min(s.Procs, machineProcs)
	}
	return s.Procs
}

// inMachine is a place in a virtual machine.
type inMachine struct{ node *vm.Node }

// swapMiB is how much swap the machine has. Pods may use none of it unless a spec permits that.
const swapMiB = 2048

// Files of the machine's disk.
var (
	machineSwap   = path.Join(vm.DiskDir, "swap")
	machineReport = path.Join(vm.DiskDir, "report.json")
	machineConfig = path.Join(vm.DiskDir, "kubelet.yaml")
	machineBin    = path.Join(vm.DiskDir, "bin")
	containerdPID = path.Join(vm.DiskDir, "containerd.pid")
)

// startMachine boots a machine for the suite.
func (s Suite) startMachine(ctx context.Context) (place, error) {
	node, err := vm.StartWithDisk(ctx, vm.Config{
		Layout: vm.NewLayout(s.Root), Mirror: s.mirror(), Log: s.Log,
	}, s.Machine.image, s.writeDisk)
	if err != nil {
		return nil, err
	}
	prepare := fmt.Sprintf("fallocate -l %dMiB %[2]s && chmod 600 %[2]s && mkswap %[2]s && swapon %[2]s && "+
		"systemctl start containerd && systemctl show -p MainPID --value containerd >%[3]s",
		swapMiB, machineSwap, containerdPID)
	_, err = node.Run(ctx, prepare)
	if err != nil {
		return nil, errors.Join(err, node.Stop(context.WithoutCancel(ctx)))
	}
	return inMachine{node}, nil
}

// writeDisk writes the files of the machine's disk: the suite, the kubelet and its configuration.
func (s Suite) writeDisk(dir string) error {
	for source, name := range map[string]string{
		s.Kubelet: "kubelet", s.program(): filepath.Base(s.program()), s.layout().Program("ginkgo"): "ginkgo",
	} {
		if err := vm.CopyFile(source, filepath.Join(dir, "bin", name)); err != nil {
			return err
		}
	}
	// Specs call systemctl by sudo; the suite runs as root.
	sudo := filepath.Join(dir, "bin", "sudo")
	if err := os.WriteFile(sudo, []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755); err != nil {
		return fmt.Errorf("write sudo: %w", err)
	}
	config := suiteConfig()
	config.CgroupDriver = "systemd"
	return cluster.WriteConfig(filepath.Join(dir, path.Base(machineConfig)), config)
}

func (m inMachine) run(ctx context.Context, args []string, log io.Writer) ([]byte, error) {
	runErr := m.node.RunTo(ctx, machineCommand(args), log, log)
	report, err := m.node.Run(ctx, "cat "+machineReport)
	return []byte(report), errors.Join(runErr, err)
}

// machineCommand is the command line that runs ginkgo with args in the machine.
func machineCommand(args []string) string {
	words := append([]string{path.Join(machineBin, "ginkgo")}, args...)
	words = append(words, "--output-dir="+vm.DiskDir, "--json-report="+path.Base(machineReport),
		path.Join(machineBin, build.NodeSuite().Name), "--", "--k8s-bin-dir="+machineBin,
		"--container-runtime-endpoint=unix:///run/containerd/containerd.sock", "--container-runtime-pid-file="+containerdPID,
		"--node-name="+cluster.NodeName, "--kubelet-config-file="+machineConfig, "--prepull-images=false",
		"--report-dir="+path.Join(vm.DiskDir, "artifacts"))
	for i, word := range words {
		words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return fmt.Sprintf("cd %s && rm -f %s && PATH=%s:$PATH %s </dev/null", vm.DiskDir, machineReport, machineBin,
		strings.Join(words, " "))
}

func (m inMachine) stop(ctx context.Context) error { return m.node.Stop(ctx) }
