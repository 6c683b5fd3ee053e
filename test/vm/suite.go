package vm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

const (
	// suiteFactor is by how much longer a suite waits under emulation. Most of what it waits for is not computed.
	suiteFactor = 6
	controlPort = "7480"
	suiteLog    = "node-tests.log"
	guestFile   = "guest.json"
)

// suitePrograms are what the tests need in the machine, beside the network plugins.
var suitePrograms = []string{
	"containerd", "containerd-shim-runc-v2", "ctr", "hog", "katalyst", kubeletOwn, kubeletStock, "kubectl", "pause",
	"runc",
}

// Suite is a run of the node tests (test/e2e_node) in a machine. Its disk is laid out as the repository.
type Suite struct {
	// Tests are the names of the tests to run.
	Tests []string
	// Result is called with the result of each test, in the order in which they end, from one goroutine.
	Result func(TestResult) error
	// Parallel is how many tests may run at the same time.
	Parallel int
}

// BuildSuite builds what RunSuite needs in addition to Build.
func BuildSuite(ctx context.Context, layout cluster.Layout, log io.Writer) error {
	builder := build.Builder{Root: layout.Root, Out: layout.Bin, Log: log}
	return builder.Build(ctx, []build.Part{build.OwnNodeTests(), build.KatalystPlugin()})
}

// RunSuite boots a machine without a node, has the tests start containerd and the kubelet there again and again, as on
// any machine, and removes the machine. The tests run in the machine, and the control plane on this one. A failed test
// is no error.
func RunSuite(ctx context.Context, config Config, image Image, suite Suite) error {
	return onHostedNode(ctx, config, image, Program{Name: build.OwnNodeTests().Name},
		func(node *Node) error { return node.runSuite(ctx, suite) })
}

// Program is a program of ours to be run in a machine.
type Program struct {
	// Name is that in the folder of programs.
	Name string
	// Arguments must have no meaning to a shell.
	Arguments []string
	// Files are written to its working directory, by name. They may be programs.
	Files map[string][]byte
	// Alone stops the control plane before, whose programs would take processors from the machine. Then the program must
	// not start a cluster.
	Alone bool
	// Out receives its output, and the log of Config its errors.
	Out io.Writer
}

// RunProgram is RunSuite for a program. The machine comes before other programs where they want the same processor:
// what is measured in it would take longer by tens of milliseconds otherwise.
func RunProgram(ctx context.Context, config Config, image Image, program Program) error {
	config.undisturbed = true
	return onHostedNode(ctx, config, image, program, func(node *Node) error {
		if program.Alone {
			if err := node.cluster.StopControlPlane(ctx); err != nil {
				return err
			}
		}
		command := node.hosted(program.Name) + " " + strings.Join(program.Arguments, " ") + " </dev/null"
		return node.RunTo(ctx, command, program.Out, config.Log)
	})
}

// onHostedNode boots a machine without a node, whose disk has that program and its files, calls run, and removes the
// machine. Meanwhile this machine serves the control plane.
func onHostedNode(ctx context.Context, config Config, image Image, program Program, run func(*Node) error) (err error) {
	config.masked = []string{"containerd.service"}
	node, err := StartWithDisk(ctx, config, image, func(tree string) error {
		for name, data := range program.Files {
			if err := (file{data, 0o755}).write(filepath.Join(tree, name)); err != nil {
				return err
			}
		}
		return writeSuite(config, program.Name, tree)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, node.Stop(context.WithoutCancel(ctx))) }()
	listener, err := node.network.listen(net.JoinHostPort(controlAddress, controlPort))
	if err != nil {
		return fmt.Errorf("serve the control plane: %w", err)
	}
	server := &http.Server{Handler: node.cluster.ControlHandler(), ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	err = run(node)
	if closed := server.Close(); err == nil {
		err = closed
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// runSuite runs the tests in the machine, which has its disk already.
func (n *Node) runSuite(ctx context.Context, suite Suite) error {
	log, err := os.Create(filepath.Join(n.config.Layout.Logs, suiteLog))
	if err != nil {
		return fmt.Errorf("log of the tests: %w", err)
	}
	defer log.Close()
	reader := &resultReader{report: suite.Result}
	out := io.MultiWriter(log, n.config.Log, reader)
	n.say("Running %d tests in the machine.", len(suite.Tests))
	ran := n.RunTo(ctx, n.suiteCommand(suite), out, io.MultiWriter(log, n.config.Log))
	// Tests that were interrupted have no result.
	if ran != nil && ctx.Err() == nil {
		reader.interrupted(cmp.Or(errors.Unwrap(ran), ran))
	}
	if reader.err != nil {
		return reader.err
	}
	// Tests that have failed are in the results; without any result nothing has run.
	if ran != nil && reader.count == 0 {
		return ran
	}
	return errors.Join(ctx.Err(), log.Sync())
}

// settings are the environment variables that have node tests run longer, or otherwise. Those that are set are passed
// on to the machine.
var settings = []string{
	"PLIMSOLL_SOAK", "PLIMSOLL_CHAOS_SEED", "PLIMSOLL_CHAOS_TIME", "PLIMSOLL_GROWTH_ROUNDS", "PLIMSOLL_LEAK_ROUNDS",
	"PLIMSOLL_LEAK_RATES", "PLIMSOLL_PLUGIN_ROUNDS", "PLIMSOLL_REPORTER_IDLE",
}

func (n *Node) suiteCommand(suite Suite) string {
	return n.hosted(build.OwnNodeTests().Name) + fmt.Sprintf(
		" -test.v -test.timeout=0 -test.parallel=%d -test.run='^(%s)$' </dev/null", max(suite.Parallel, 1),
		strings.Join(suite.Tests, "|"))
}

// hosted is the beginning of a command that runs a program on the disk.
func (n *Node) hosted(program string) string {
	environment := map[string]string{
		cluster.GuestVariable:  filepath.Join(DiskDir, guestFile),
		cluster.FactorVariable: strconv.Itoa(int(min(n.factor, suiteFactor))),
		"PLIMSOLL_KUBELET":     filepath.Join(DiskDir, cluster.OutputDir, "bin", n.config.kubelet()),
	}
	for _, name := range settings {
		if value := os.Getenv(name); value != "" {
			environment[name] = value
		}
	}
	command := "cd " + DiskDir + " && env"
	for name, value := range environment {
		command += fmt.Sprintf(" %s=%q", name, value)
	}
	return fmt.Sprintf("%s %s/bin/%s", command, cluster.OutputDir, program)
}

// kubelet is the name of the kubelet's program.
func (c Config) kubelet() string {
	if c.Stock {
		return kubeletStock
	}
	return kubeletOwn
}

// writeSuite writes the files of the disk: the program and everything that it needs. The control plane must have its
// credentials.
func writeSuite(config Config, program, tree string) error {
	for _, dir := range []string{"config", cluster.OutputDir + "/bin"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			return fmt.Errorf("make folder: %w", err)
		}
	}
	guest, err := json.Marshal(cluster.Guest{
		ControlPlane: "http://" + net.JoinHostPort(controlAddress, controlPort), Credentials: DiskDir + "/credentials",
		ImageStore: "/var/lib/containerd", Systemd: config.Cgroups.systemd(), CgroupRoot: config.Cgroups.root(),
	})
	if err != nil {
		return fmt.Errorf("encode guest: %w", err)
	}
	if err := (file{guest, 0o644}).write(filepath.Join(tree, guestFile)); err != nil {
		return err
	}
	layout := config.Layout
	copies := map[string]string{filepath.Join(layout.Root, "go.mod"): "go.mod"}
	for _, name := range append([]string{program}, suitePrograms...) {
		copies[layout.Program(name)] = filepath.Join(cluster.OutputDir, "bin", name)
	}
	for source, target := range copies {
		if err := CopyFile(source, filepath.Join(tree, target)); err != nil {
			return err
		}
	}
	if err := os.CopyFS(filepath.Join(tree, "config"), os.DirFS(filepath.Join(layout.Root, "config"))); err != nil {
		return fmt.Errorf("copy manifests: %w", err)
	}
	for _, dir := range cluster.CredentialDirs {
		source := os.DirFS(filepath.Join(layout.State, dir))
		if err := os.CopyFS(filepath.Join(tree, "credentials", dir), source); err != nil {
			return fmt.Errorf("copy credentials: %w", err)
		}
	}
	return nil
}
