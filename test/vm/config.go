package vm

import (
	"io"
	"path/filepath"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/plimsoll-project/plimsoll/test/cluster"
)

const (
	pollInterval = 500 * time.Millisecond
	// stopGrace is how long a process of this machine may take to stop after SIGTERM.
	stopGrace = 15 * time.Second
	// emulationFactor is by how much longer things may take under software emulation: system calls and forks take 8 times
	// as long, Go channels 15 times, and JSON 20 times.
	emulationFactor = 20
	// defaultMemoryMiB is the memory of the machine if its configuration does not say.
	defaultMemoryMiB = 2560
	processors       = 2
)

// Config configures a node in a virtual machine. Only Layout is required.
type Config struct {
	// Layout is that of NewLayout.
	Layout cluster.Layout
	// Stock starts the node with the stock kubelet, as if our drop-in had not been installed.
	Stock bool
	// Cgroups is how the node's control groups are laid out.
	Cgroups Cgroups
	// MemoryMiB is the memory of the machine; 0 for the default.
	MemoryMiB int
	// Programs are the names of more programs of Layout.Bin that the machine has in ProgramDir.
	Programs []string
	// Mirror is a directory of images, as OCI layouts, that the control plane serves to the machine; "" for none.
	Mirror string
	// fillDisk writes the files of a disk that the machine has in addition; nil for none. See StartWithDisk.
	fillDisk func(dir string) error
	// masked are units that systemd does not start.
	masked []string
	// undisturbed gives the machine the processors before other programs, the control plane for one.
	undisturbed bool
	// Tune may change the kubelet's configuration before it is written.
	Tune func(*kubeletv1beta1.KubeletConfiguration)
	// Log receives progress, one line per step, and Console what the machine writes to its console while it boots; nil
	// discards it.
	Log, Console io.Writer
}

// ProgramDir is the directory in the machine of the kubelets and of Config.Programs.
const ProgramDir = "/opt/node"

// NewLayout returns the layout of the virtual machine of the repository at root.
func NewLayout(root string) cluster.Layout {
	layout := cluster.NewLayout(root, "vm")
	layout.State = filepath.Join(root, cluster.OutputDir, "vm", "run")
	return layout
}

// Kubelets of the machine.
const (
	kubeletOwn   = "kubelet"
	kubeletStock = "kubelet-stock"
)

func consoleFile(layout cluster.Layout) string { return filepath.Join(layout.Logs, "console.log") }
