package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/cluster/build"
)

// interruptPatience is how long the suite may take to end after an interrupt.
const interruptPatience = 2 * time.Minute

// upstream is one of the upstream suites.
type upstream interface {
	// part is its program.
	part() build.Part
	// call prepares what the suite needs on a running cluster, and returns how to call it.
	call(ctx context.Context, c *cluster.Cluster) (call, error)
}

// call is how a suite is called: its own arguments, and variables in addition to this program's environment.
type call struct {
	args []string
	env  []string
	// before runs before each call, or is nil.
	before func() error
	// beside runs concurrently with the suite, or is nil.
	beside func(context.Context)
	// end removes what was prepared for the suite, or is nil.
	end func(context.Context) error
}

// finish removes what was prepared for the suite.
func (c call) finish(ctx context.Context) error {
	if c.end == nil {
		return nil
	}
	return c.end(ctx)
}

func (s Suite) upstream() upstream {
	if s.Cluster {
		return clusterSuite{s}
	}
	return nodeSuite{s}
}

func (s Suite) program() string { return s.layout().Program(s.upstream().part().Name) }

// place is where a suite runs.
type place interface {
	// run runs ginkgo with these arguments for the suite, writes its output to log, and returns the suite's report. Failed
	// specs are an error. When it is interrupted it returns the report on those that had ended, if there is one.
	run(ctx context.Context, args []string, log io.Writer) (report []byte, err error)
	// stop stops and removes what was started for the suite.
	stop(ctx context.Context) error
}

// ginkgo runs the named specs and returns their outcomes. Failed specs are no error. When it is interrupted it returns
// the outcomes of those that had ended, and the context's error.
func (s Suite) ginkgo(ctx context.Context, where place, names []string) ([]spec, error) {
	if err := os.MkdirAll(s.file(""), 0o755); err != nil {
		return nil, fmt.Errorf("make folder for the log: %w", err)
	}
	log, err := os.OpenFile(s.file("suite.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	report, runErr := where.run(ctx, []string{
		"--procs=" + strconv.Itoa(s.procs()), "--no-color", "--silence-skips", "--timeout=6h", "--focus=" + exactly(names),
	}, log)
	specs, err := decodeReport(report)
	if err != nil {
		return nil, fmt.Errorf("the suite gave no report, see %s: %w", log.Name(), errors.Join(ctx.Err(), runErr, err))
	}
	specs = slices.DeleteFunc(specs, func(s spec) bool { return !slices.Contains(names, s.name()) || s.cutOff() })
	if len(specs) == 0 && ctx.Err() == nil {
		err := fmt.Errorf("the suite could not begin with any of %d specs, see %s", len(names), log.Name())
		return nil, errors.Join(err, runErr)
	}
	return specs, ctx.Err()
}

// here is a place on this machine.
type here struct {
	suite   Suite
	call    call
	cluster *cluster.Cluster
}

// startHere starts a cluster for the suite on this machine.
func (s Suite) startHere(ctx context.Context) (place, error) {
	c, err := cluster.Start(ctx, cluster.Config{
		Layout: s.layout(), Kubelet: s.Kubelet, RuntimeOnly: !s.Cluster, Mirror: s.mirror(), Log: s.Log,
	})
	if err != nil {
		return nil, err
	}
	call, err := s.upstream().call(ctx, c)
	if err != nil {
		return nil, errors.Join(err, c.Stop(context.WithoutCancel(ctx)))
	}
	return here{suite: s, call: call, cluster: c}, nil
}

func (h here) run(ctx context.Context, args []string, log io.Writer) ([]byte, error) {
	s := h.suite
	report := filepath.Join(s.Dir, "report.json")
	if err := os.RemoveAll(report); err != nil {
		return nil, fmt.Errorf("remove old report: %w", err)
	}
	args = append(args, "--output-dir="+s.Dir, "--json-report="+filepath.Base(report), s.program(), "--")
	cmd := exec.CommandContext(ctx, s.layout().Program("ginkgo"), append(args, h.call.args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, log, log
	cmd.Env = append(os.Environ(), h.call.env...)
	// An interrupted suite stops what it started itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = interruptPatience
	runErr := h.call.run(ctx, cmd)
	data, err := os.ReadFile(report)
	return data, errors.Join(runErr, err)
}

func (h here) stop(ctx context.Context) error {
	return errors.Join(h.call.finish(ctx), h.cluster.Stop(ctx))
}

// run runs the suite and concurrently what belongs to the call.
func (c call) run(ctx context.Context, suite *exec.Cmd) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	if c.before != nil {
		if err := c.before(); err != nil {
			return err
		}
	}
	if c.beside != nil {
		beside.Go(func() { c.beside(ctx) })
	}
	return suite.Run()
}

// exactly returns a regular expression that matches these names and no others. Some names have two spaces in a row,
// which the suite reduces to one when it selects specs.
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
