package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/plimsoll-project/plimsoll/test/cluster/host"
)

const (
	// reporterTimeout is how long the API server may take until the kind is served and the policy is in force, which is
	// usually a second.
	reporterTimeout = time.Minute

	reporterKind   = "customnoderesources.node.katalyst.kubewharf.io"
	reporterPolicy = "plimsoll-node-reporter"
	// foreignObject is an object that the node must not create.
	foreignObject = `{"apiVersion": "node.katalyst.kubewharf.io/v1alpha1", "kind": "CustomNodeResource",
		"metadata": {"name": "another-node"}}`
)

// reporterManifests are what reporter plugins need in the cluster: the kind CustomNodeResource, and the rights of
// nodes.
func (l Layout) reporterManifests() []string {
	return []string{
		filepath.Join(l.Root, "config", "crd", "customnoderesources.yaml"),
		filepath.Join(l.Root, "config", "rbac", "reporter.yaml"),
	}
}

// installReporter applies the manifests of reporter plugins, which changes nothing if they are there, and waits until
// the kind is served and the policy is in force.
func (c *Cluster) installReporter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, reporterTimeout)
	defer cancel()
	for _, file := range c.config.Layout.reporterManifests() {
		if err := c.kubectl(ctx, userAdmin, nil, "apply", "-f", file); err != nil {
			return err
		}
	}
	err := c.kubectl(ctx, userAdmin, nil, "wait", "--for=condition=Established", "crd/"+reporterKind,
		"--timeout="+reporterTimeout.String())
	if err != nil {
		return err
	}
	var last error
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		last = refusedByReporterPolicy(c.kubectl(ctx, userKubelet, []byte(foreignObject), "create", "--dry-run=server",
			"--validate=false", "-f", "-"))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the policy %s is not in force: %w", reporterPolicy, errors.Join(err, last))
	}
	return nil
}

// refusedByReporterPolicy is nil if err is the answer of the policy, and not of RBAC.
func refusedByReporterPolicy(err error) error {
	switch {
	case err == nil:
		return errors.New("a node may create the object of another node")
	case strings.Contains(err.Error(), reporterPolicy):
		return nil
	}
	return err
}

// kubectl runs kubectl as a user of the cluster.
func (c *Cluster) kubectl(ctx context.Context, user string, input []byte, args ...string) error {
	layout := c.config.Layout
	args = append([]string{"--kubeconfig=" + layout.kubeconfig(user), "--cache-dir=" + layout.run("kubectl")}, args...)
	command := c.config.inNetwork(host.Command{Path: layout.Program("kubectl"), Args: args})
	cmd := exec.CommandContext(ctx, command.Path, command.Args...)
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args[2:], " "), err, bytes.TrimSpace(out))
	}
	return nil
}
