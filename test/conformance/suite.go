// Package conformance runs the upstream node suite, unmodified, against a
// kubelet, and compares the outcome with that of the stock kubelet. A run that
// was interrupted goes on where it was: specs that passed are not run again.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/util"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// How many specs are run between two savings of the results. The suite starts
// and stops its own control plane for each batch. Serial specs take longest.
const (
	batch       = 60
	serialBatch = 15
)

// interruptPatience is how long the suite may take to end when it is
// interrupted.
const interruptPatience = 2 * time.Minute

// Suite runs a selection of the upstream suite against one kubelet.
type Suite struct {
	Selection
	// Root is the repository, Dir where everything of all runs is kept.
	Root string
	Dir  string
	// Kubelet is the binary under test, Party the name its results are kept
	// under.
	Kubelet string
	Party   string
	Log     io.Writer
}

// Stock makes the suite one for the stock kubelet. Its results are kept by
// what they depend on: the release and the machine.
func (s Suite) Stock() (Suite, error) {
	facts, err := machineFacts()
	if err != nil {
		return s, err
	}
	s.Kubelet, s.Party = s.layout().Program(build.StockKubelet().Name), "stock-"+build.KubernetesVersion+"-"+facts
	return s, nil
}

// Kept are the results of earlier runs.
func (s Suite) Kept() (Results, error) { return loadResults(s.file("results.json")) }

// Forget removes the results of earlier runs.
func (s Suite) Forget() error {
	if err := os.RemoveAll(s.file("results.json")); err != nil {
		return fmt.Errorf("forget results: %w", err)
	}
	return nil
}

// file is where something of this suite with this kubelet is kept.
func (s Suite) file(name string) string { return filepath.Join(s.Dir, s.Party, s.Name, name) }

// Prepare builds everything that Run needs.
func (s Suite) Prepare(ctx context.Context) error {
	layout := s.layout()
	builder := build.Builder{Root: s.Root, Out: layout.Bin, Log: s.Log}
	if err := builder.All(ctx, layout.Images, s.Kubelet == layout.Program("kubelet")); err != nil {
		return err
	}
	parts := build.ConformanceParts()
	if s.Kubelet == layout.Program(build.StockKubelet().Name) {
		parts = append(parts, build.StockKubelet())
	}
	if err := builder.Build(ctx, parts); err != nil {
		return err
	}
	if err := s.makePath(); err != nil {
		return err
	}
	nonewprivs := builder.Path("nonewprivs")
	if err := os.Chmod(nonewprivs, 0o755|os.ModeSetuid); err != nil {
		return fmt.Errorf("set user on execution: %w", err)
	}
	return images{builder: builder, dir: s.mirror(), userland: filepath.Join(s.Dir, "userland"), log: s.Log}.write(ctx)
}

// Run runs what has not passed yet and returns all results.
func (s Suite) Run(ctx context.Context) (Results, error) {
	results, err := s.Kept()
	if err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Config{Layout: s.layout(), Kubelet: s.Kubelet, RuntimeOnly: true, Mirror: s.mirror(), Log: s.Log})
	if err != nil {
		return nil, err
	}
	err = s.runBatches(ctx, c, results)
	return results, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
}

func (s Suite) runBatches(ctx context.Context, c *cluster.Cluster, results Results) error {
	if err := s.writePID(c); err != nil {
		return err
	}
	specs, err := s.list(ctx)
	if err != nil {
		return err
	}
	groups := remaining(specs, results)
	names, todo := make([]string, len(specs)), slices.Concat(groups...)
	for i, spec := range specs {
		names[i] = spec.name()
	}
	fmt.Fprintf(s.Log, "Suite %s with %s: %d specs, %d of them passed already. Log: %s\n", s.Name, s.Kubelet, len(names), len(names)-len(todo), s.file("suite.log"))
	done := 0
	for _, chunk := range batches(groups) {
		start := time.Now()
		specs, err := s.ginkgo(ctx, c, chunk)
		if err != nil {
			return err
		}
		good := 0
		for _, spec := range specs {
			results.add(spec)
			if spec.State == passed {
				good++
			}
		}
		if err := results.save(s.file("results.json")); err != nil {
			return err
		}
		done += len(chunk)
		fmt.Fprintf(s.Log, "  %d of %d: %d of these %d passed, %s\n", done, len(todo), good, len(chunk), time.Since(start).Round(time.Second))
	}
	return nil
}

// remaining are the specs that have not all passed, by the container they
// stand in: those of an ordered container depend on each other, so that one
// that failed is run again with all of them.
func remaining(specs []spec, results Results) [][]string {
	groups, open := map[string][]string{}, map[string]bool{}
	for _, s := range specs {
		container := strings.Join(s.Containers, " ")
		groups[container] = append(groups[container], s.name())
		if results[s.name()].State != passed {
			open[container] = true
		}
	}
	var left [][]string
	for _, container := range slices.Sorted(maps.Keys(open)) {
		left = append(left, groups[container])
	}
	return left
}

// batches puts groups of specs together that run well together: first those
// that run side by side, then those that run alone, each of which would wait
// for the slowest of the others, at last the slow ones.
func batches(groups [][]string) [][]string {
	kinds := make([][][]string, 3)
	for _, group := range groups {
		has := func(label string) bool {
			return slices.ContainsFunc(group, func(name string) bool { return strings.Contains(name, label) })
		}
		kind := 0
		switch {
		case has("[Serial]"):
			kind = 1
		case has("[Slow]"):
			kind = 2
		}
		kinds[kind] = append(kinds[kind], group)
	}
	return slices.Concat(pack(kinds[0], batch), pack(kinds[1], serialBatch), pack(kinds[2], batch))
}

// pack joins groups to batches of at least size, but for the last.
func pack(groups [][]string, size int) [][]string {
	var packed [][]string
	for _, group := range groups {
		if last := len(packed) - 1; last >= 0 && len(packed[last]) < size {
			packed[last] = append(packed[last], group...)
			continue
		}
		packed = append(packed, slices.Clone(group))
	}
	return packed
}

// list asks the suite for the specs that Focus and Skip choose.
func (s Suite) list(ctx context.Context) ([]spec, error) {
	report := filepath.Join(s.Dir, "list.json")
	cmd := exec.CommandContext(ctx, s.layout().Program("e2e_node.test"),
		"--ginkgo.dry-run", "--ginkgo.silence-skips", "--ginkgo.focus="+s.Focus, "--ginkgo.skip="+s.Skip, "--ginkgo.json-report="+report)
	cmd.Dir = s.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("list specs: %w\n%s", err, out)
	}
	specs, err := readReport(report)
	if err != nil {
		return nil, err
	}
	// In a dry run those that are chosen pass.
	chosen := slices.DeleteFunc(specs, func(s spec) bool { return s.State != passed })
	slices.SortFunc(chosen, func(a, b spec) int { return strings.Compare(a.name(), b.name()) })
	return slices.CompactFunc(chosen, func(a, b spec) bool { return a.name() == b.name() }), nil
}

// ginkgo runs the named specs and returns what became of them. That specs
// failed is no error.
func (s Suite) ginkgo(ctx context.Context, c *cluster.Cluster, names []string) ([]spec, error) {
	layout := s.layout()
	report := filepath.Join(s.Dir, "report.json")
	if err := os.RemoveAll(report); err != nil {
		return nil, fmt.Errorf("remove old report: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(s.file("suite.log")), 0o755); err != nil {
		return nil, fmt.Errorf("make folder for the log: %w", err)
	}
	log, err := os.OpenFile(s.file("suite.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	if err := s.writeConfig(); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, layout.Program("ginkgo"),
		"--procs="+strconv.Itoa(s.Procs), "--no-color", "--timeout=6h", "--focus="+exactly(names), "--output-dir="+s.Dir, "--json-report="+filepath.Base(report),
		layout.Program("e2e_node.test"), "--",
		"--k8s-bin-dir="+filepath.Join(s.Dir, "kubelet"),
		"--container-runtime-endpoint=unix://"+layout.Socket(), "--container-runtime-pid-file="+s.pidFile(),
		"--node-name="+cluster.NodeName, "--kubelet-config-file="+filepath.Join(s.Dir, "kubelet.yaml"),
		"--prepull-images=false", "--report-dir="+s.file("artifacts"))
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, log, log
	cmd.Env = append(os.Environ(), "PATH="+s.path()+":"+layout.Bin+":"+os.Getenv("PATH"), "FAKESYSTEMD_UNITS="+filepath.Join(s.Dir, "units"))
	// An interrupted suite stops its control plane and the kubelet itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = interruptPatience
	runErr := cmd.Run()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	specs, err := readReport(report)
	if err != nil {
		return nil, fmt.Errorf("the suite gave no report, see %s: %w", log.Name(), errors.Join(runErr, err))
	}
	chosen := slices.DeleteFunc(specs, func(s spec) bool { return !slices.Contains(names, s.name()) })
	return chosen, nil
}

// exactly is a regular expression that matches these names and no others. Some
// names have two spaces in a row, which the suite sees as one when it chooses.
func exactly(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		words := strings.Fields(name)
		for j, word := range words {
			words[j] = regexp.QuoteMeta(word)
		}
		quoted[i] = strings.Join(words, " +")
	}
	return "^.*(" + strings.Join(quoted, "|") + ")$"
}

func (s Suite) layout() cluster.Layout { return cluster.NewLayout(s.Root, cluster.TestName) }

// machineFacts says in one word what results of a kubelet depend on here.
func machineFacts() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("ask for the kernel's release: %w", err)
	}
	var memory unix.Sysinfo_t
	if err := unix.Sysinfo(&memory); err != nil {
		return "", fmt.Errorf("ask for the memory of the machine: %w", err)
	}
	cgroup := "cgroup1"
	if util.IsCgroup2UnifiedMode() {
		cgroup = "cgroup2"
	}
	gib := (memory.Totalram*uint64(memory.Unit) + 1<<29) >> 30
	return fmt.Sprintf("linux%s-%s-%dcpu-%dgib", unix.ByteSliceToString(u.Release[:]), cgroup, runtime.NumCPU(), gib), nil
}

func (s Suite) mirror() string { return filepath.Join(s.Dir, "images") }

func (s Suite) path() string { return filepath.Join(s.Dir, "path") }

func (s Suite) pidFile() string { return filepath.Join(s.Dir, "containerd.pid") }

func (s Suite) writePID(c *cluster.Cluster) error {
	pid, err := c.ContainerdPID()
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.pidFile(), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("write pid file: %w", err)
	}
	return nil
}

// makePath puts the stand-ins for systemd's programs, and the kubelet, where
// the suite looks for them.
func (s Suite) makePath() error {
	links := map[string]string{filepath.Join(s.Dir, "kubelet", "kubelet"): s.Kubelet}
	for _, name := range []string{"systemd-run", "systemctl", "journalctl", "sudo"} {
		links[filepath.Join(s.path(), name)] = s.layout().Program("fakesystemd")
	}
	for link, target := range links {
		err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.RemoveAll(link), os.Symlink(target, link))
		if err != nil {
			return fmt.Errorf("link %s: %w", link, err)
		}
	}
	return nil
}

func (s Suite) writeConfig() error {
	return cluster.WriteConfig(filepath.Join(s.Dir, "kubelet.yaml"), &kubeletv1beta1.KubeletConfiguration{
		CgroupDriver:           "cgroupfs",
		CgroupRoot:             "/",
		FailCgroupV1:           new(false),
		FailSwapOn:             new(false),
		SerializeImagePulls:    new(false),
		PodCIDR:                "10.100.0.0/24",
		EvictionHard:           map[string]string{"memory.available": "250Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"},
		EvictionMinimumReclaim: map[string]string{"nodefs.available": "5%", "nodefs.inodesFree": "5%"},
	})
}
