package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/plimsoll-project/plimsoll/test/cluster"
	"github.com/plimsoll-project/plimsoll/test/demo"
)

// runCluster starts the cluster. If it runs already, only the kubelet is restarted, if its binary is newer; pods go on
// running.
func (d dev) runCluster(ctx context.Context) error {
	if err := cluster.CheckMachine(); err != nil {
		return fmt.Errorf("this machine cannot run a node:\n%w", err)
	}
	if err := d.buildAll(ctx); err != nil {
		return err
	}
	c, err := cluster.Open(d.config())
	if err != nil {
		c, err = cluster.Start(ctx, d.config())
	} else {
		err = c.RefreshKubelet(ctx)
	}
	if err != nil {
		return err
	}
	return d.explain(c)
}

// explain prints how to use the cluster, and writes a file with its environment.
func (d dev) explain(c *cluster.Cluster) error {
	config := c.Layout().AdminConfig()
	env := filepath.Join(d.root, cluster.OutputDir, "env")
	text := fmt.Sprintf("export KUBECONFIG=%s PATH=%s:$PATH\n", config, d.layout.Bin)
	if err := os.WriteFile(env, []byte(text), 0o644); err != nil {
		return fmt.Errorf("write environment file: %w", err)
	}
	fmt.Printf(hints, config, env, c.Layout().Manifests(), d.layout.Logs)
	return nil
}

const hints = `
KUBECONFIG=%[1]s

Try next:
  . %[2]s
  kubectl get nodes,pods -A
  kubectl create deployment web --image=localhost/busybox:1 -- \
    sh -c 'echo hello >/tmp/index.html; httpd -f -p 8080 -h /tmp'
  kubectl exec deploy/web -- hostname
  kubectl port-forward deploy/web 8080:8080       # then: curl localhost:8080
  make demo                                       # real memory pressure, and an eviction
  make run                                        # again, after a change: only the kubelet is replaced
  make stop                                       # removes every trace

Static pods go to %[3]s
Logs are in      %[4]s
`

func (d dev) runDemo(ctx context.Context) error {
	c, err := cluster.Open(d.config())
	if err != nil {
		fmt.Println("No cluster runs yet; starting one.")
		if err := d.runCluster(ctx); err != nil {
			return err
		}
		if c, err = cluster.Open(d.config()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Minute)
	defer cancel()
	return demo.New(c, os.Stdout).Run(ctx)
}
